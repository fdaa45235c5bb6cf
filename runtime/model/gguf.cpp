#include "runtime/model/gguf.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"

namespace shardscope::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "both weight formats are little-endian");

// Value types of the format.
enum ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};
constexpr std::array<uint64_t, 13> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: of varying size

struct TensorType {
  uint32_t id;
  std::string_view name;
  uint64_t block_elements;
  uint64_t block_bytes;
  std::optional<kernels::DType> dtype;
};

// Source: ggml.h (ids), ggml-common.h (blocks). 4, 5, 31 to 33 and 36 to 38 were removed from the format.
constexpr std::array<TensorType, 33> kTensorTypes = {{
    {0, "F32", 1, 4, kernels::DType::kF32},
    {1, "F16", 1, 2, kernels::DType::kF16},
    {30, "BF16", 1, 2, kernels::DType::kBF16},
    {2, "Q4_0", 32, 18, kernels::DType::kQ4_0},
    {3, "Q4_1", 32, 20, kernels::DType::kQ4_1},
    {8, "Q8_0", 32, 34, kernels::DType::kQ8_0},
    {6, "Q5_0", 32, 22, {}},
    {7, "Q5_1", 32, 24, {}},
    {9, "Q8_1", 32, 36, {}},
    {10, "Q2_K", 256, 84, {}},
    {11, "Q3_K", 256, 110, {}},
    {12, "Q4_K", 256, 144, {}},
    {13, "Q5_K", 256, 176, {}},
    {14, "Q6_K", 256, 210, {}},
    {15, "Q8_K", 256, 292, {}},
    {16, "IQ2_XXS", 256, 66, {}},
    {17, "IQ2_XS", 256, 74, {}},
    {18, "IQ3_XXS", 256, 98, {}},
    {19, "IQ1_S", 256, 50, {}},
    {20, "IQ4_NL", 32, 18, {}},
    {21, "IQ3_S", 256, 110, {}},
    {22, "IQ2_S", 256, 82, {}},
    {23, "IQ4_XS", 256, 136, {}},
    {24, "I8", 1, 1, {}},
    {25, "I16", 1, 2, {}},
    {26, "I32", 1, 4, {}},
    {27, "I64", 1, 8, {}},
    {28, "F64", 1, 8, {}},
    {29, "IQ1_M", 256, 56, {}},
    {34, "TQ1_0", 256, 54, {}},
    {35, "TQ2_0", 256, 66, {}},
    {39, "MXFP4", 32, 17, {}},
    {40, "NVFP4", 64, 36, {}},
}};

constexpr uint64_t kNameLimit = 63;    // of tensors, as ggml has it
constexpr uint64_t kKeyLimit = 65535;  // docs/gguf.md
constexpr uint64_t kTextLimit = 1 << 30;
constexpr uint64_t kLeastBytes = 8;  // of a key and of a tensor info: each begins with a length

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

/// Reads forward; every step checks what is left.
class GgufFile::Cursor {
 public:
  Cursor(const GgufFile& owner, std::span<const std::byte> bytes) : owner_(owner), bytes_(bytes) {}

  uint64_t left() const { return bytes_.size() - position_; }
  uint64_t position() const { return position_; }

  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      owner_.fail(fmt::format("{} needs {} bytes at byte {}, but {} are left", what, count, position_, left()));
    }
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }
  template <typename T>
  T take_number(std::string_view what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view take_text(uint64_t limit, std::string_view what) {
    const auto length = take_number<uint64_t>(what);
    if (length > limit)
      owner_.fail(fmt::format("{} has a length of {} bytes, above the limit {}", what, length, limit));
    const auto taken = take(length, what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  const GgufFile& owner_;
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

GgufFile::GgufFile(const std::string& path) : file_(path) {
  stored_.where = path;
  stored_.naming = Naming::kGguf;
  Cursor cursor(*this, file_.bytes());
  const auto magic = cursor.take(4, "the magic \"GGUF\"");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) fail("the file does not begin with the magic \"GGUF\"");
  version_ = cursor.take_number<uint32_t>("the version");
  if (version_ != 0 && (version_ & 0xFFFFU) == 0) fail("the file is big-endian, which cannot be read");
  if (version_ < 2 || version_ > 3) fail(fmt::format("GGUF version {} is not known: 2 and 3 are", version_));
  const auto tensor_count = cursor.take_number<uint64_t>("the tensor count");
  const auto key_count = cursor.take_number<uint64_t>("the key count");
  if (key_count > cursor.left() / kLeastBytes) {
    fail(fmt::format("key count {} is more than the {} bytes left can hold", key_count, cursor.left()));
  }
  if (tensor_count > cursor.left() / kLeastBytes) {
    fail(fmt::format("tensor count {} is more than the {} bytes left can hold", tensor_count, cursor.left()));
  }
  read_metadata(cursor, key_count);
  read_tensor_infos(cursor, tensor_count);
}

void GgufFile::fail(const std::string& what) const {
  throw UserError(what, file_.path(), "fetch or convert the file again");
}

GgufFile::Value GgufFile::read_value(Cursor& cursor, std::string_view key) const {
  const std::string what = fmt::format("the value of {}", printable(key));
  Value value;
  value.type = cursor.take_number<uint32_t>(what);
  if (value.type == kArray) {
    value.array = true;
    value.type = cursor.take_number<uint32_t>(what);
    value.count = cursor.take_number<uint64_t>(what);
    if (value.type == kArray) fail(fmt::format("{} is an array of arrays, which nothing uses", what));
  }
  if (value.type > kF64) fail(fmt::format("{} has the unknown type {}", what, value.type));
  const uint64_t least = value.type == kString ? 8 : kValueBytes[value.type];
  if (value.count > cursor.left() / least) {
    fail(fmt::format("{} has {} items, more than the {} bytes left can hold", what, value.count, cursor.left()));
  }
  if (value.type != kString) {
    value.bytes = cursor.take(value.count * least, what);
    return value;
  }
  const uint64_t begin = cursor.position();
  for (uint64_t i = 0; i < value.count; ++i) cursor.take_text(kTextLimit, what);
  value.bytes = file_.bytes().subspan(begin, cursor.position() - begin);
  return value;
}

void GgufFile::read_metadata(Cursor& cursor, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view key = cursor.take_text(kKeyLimit, fmt::format("the name of key {}", i));
    if (key.empty()) fail(fmt::format("key {} has an empty name", i));
    if (values_.contains(key)) fail(fmt::format("the key {} stands twice", printable(key)));
    values_.emplace(key, read_value(cursor, key));
  }
}

void GgufFile::read_tensor_infos(Cursor& cursor, uint64_t count) {
  uint64_t alignment = 32;
  if (const Value* value = scalar("general.alignment"); value != nullptr) {
    if (value->type != kU32) wrong_type("general.alignment", "a u32");
    alignment = load<uint32_t>(value->bytes);
    if (!std::has_single_bit(alignment))
      fail(fmt::format("general.alignment is {}: must be a power of two", alignment));
  }
  const auto padded = [&](uint64_t bytes) { return (bytes + alignment - 1) & ~(alignment - 1); };
  constexpr uint64_t kSizeLimit = uint64_t{1} << 60;  // far above any file; keeps the sums below from wrapping

  std::unordered_set<std::string_view> names;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> sizes;
  uint64_t end = 0;  // of the tensors so far, padded
  for (uint64_t i = 0; i < count; ++i) {
    const std::string_view name = cursor.take_text(kNameLimit, fmt::format("the name of tensor {}", i));
    const std::string label = fmt::format("tensor {}", printable(name));
    if (name.empty()) fail(fmt::format("tensor {} has an empty name", i));
    if (!names.insert(name).second) fail(fmt::format("{} stands twice", label));
    const auto dimensions = cursor.take_number<uint32_t>(label);
    if (dimensions < 1 || dimensions > 4)
      fail(fmt::format("{} has {} dimensions: 1 to 4 are possible", label, dimensions));
    StoredTensor tensor;
    uint64_t elements = 1;
    for (uint32_t d = 0; d < dimensions; ++d) {
      const auto size = cursor.take_number<uint64_t>(label);
      if (size == 0 || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(fmt::format("{}: dimension {} is {}", label, d, static_cast<int64_t>(size)));
      }
      if (__builtin_mul_overflow(elements, size, &elements) || elements > kSizeLimit) {
        fail(fmt::format("{}: the product of its dimensions is too large", label));
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    while (tensor.shape.size() > 2 && tensor.shape.front() == 1) tensor.shape.erase(tensor.shape.begin());
    const auto id = cursor.take_number<uint32_t>(label);
    const auto* type =
        std::find_if(kTensorTypes.begin(), kTensorTypes.end(), [&](const TensorType& known) { return known.id == id; });
    if (type == kTensorTypes.end()) fail(fmt::format("{} has the unknown or removed type {}", label, id));
    const auto columns = static_cast<uint64_t>(tensor.shape.back());
    if (columns % type->block_elements != 0) {
      fail(fmt::format("{}: rows of {} do not divide into {} blocks of {}", label, columns, type->name,
                       type->block_elements));
    }
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(elements / type->block_elements, type->block_bytes, &bytes) || bytes > kSizeLimit ||
        end > kSizeLimit) {
      fail(fmt::format("{}: its size is too large", label));
    }
    const auto offset = cursor.take_number<uint64_t>(label);
    if (offset != end) {
      fail(fmt::format("{} has the offset {}, but the one before ends at {} (alignment {})", label, offset, end,
                       alignment));
    }
    end = padded(end + bytes);
    tensor.name = name;
    tensor.type = type->name;
    tensor.dtype = type->dtype;
    tensor.file = file_.path();
    stored_.tensors.push_back(std::move(tensor));
    offsets.push_back(offset);
    sizes.push_back(bytes);
  }

  const std::span<const std::byte> all = file_.bytes();
  const uint64_t data_start = std::min<uint64_t>(padded(cursor.position()), all.size());
  const std::span<const std::byte> data = all.subspan(data_start);
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] > data.size() || sizes[i] > data.size() - offsets[i]) {
      fail(fmt::format("tensor {} runs from {} to {}, but the file holds {} bytes of data (truncated?)",
                       printable(stored_.tensors[i].name), offsets[i], offsets[i] + sizes[i], data.size()));
    }
    stored_.tensors[i].data = data.subspan(offsets[i], sizes[i]);
  }
  if (data.size() > end) fail(fmt::format("{} bytes stand after the last tensor", data.size() - end));
  const uint64_t size = all.size();
  const uint64_t header_hash = fnv1a(std::as_bytes(std::span(&size, 1)), fnv1a(all.first(data_start)));
  stored_.identity_hash = fnv1a_sampled(data, header_hash);
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> names;
  for (const auto& [key, value] : values_) names.push_back(key);
  return names;
}

const GgufFile::Value* GgufFile::scalar(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return nullptr;
  if (found->second.array) wrong_type(key, "one value");
  return &found->second;
}

void GgufFile::wrong_type(std::string_view key, std::string_view wanted) const {
  fail(fmt::format("the value of {} must be {}", printable(key), wanted));
}

namespace {

/// An integer of any of the format's types; nothing for other types and for what does not fit.
std::optional<int64_t> integer_at(uint32_t type, std::span<const std::byte> bytes) {
  switch (type) {
    case kU8:
      return load<uint8_t>(bytes);
    case kI8:
      return load<int8_t>(bytes);
    case kU16:
      return load<uint16_t>(bytes);
    case kI16:
      return load<int16_t>(bytes);
    case kU32:
      return load<uint32_t>(bytes);
    case kI32:
      return load<int32_t>(bytes);
    case kI64:
      return load<int64_t>(bytes);
    case kU64: {
      const auto value = load<uint64_t>(bytes);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
      return static_cast<int64_t>(value);
    }
  }
  return {};
}

}  // namespace

std::optional<int64_t> GgufFile::whole_number(std::string_view key) const {
  const Value* value = scalar(key);
  if (value == nullptr) return {};
  const std::optional<int64_t> number = integer_at(value->type, value->bytes);
  if (!number) wrong_type(key, "a whole number");
  return number;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const Value* value = scalar(key);
  if (value == nullptr) return {};
  if (value->type == kF32) return static_cast<double>(load<float>(value->bytes));
  if (value->type != kF64) wrong_type(key, "a floating-point number");
  return load<double>(value->bytes);
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  const Value* value = scalar(key);
  if (value == nullptr) return {};
  if (value->type != kBool) wrong_type(key, "true or false");
  return load<uint8_t>(value->bytes) != 0;
}

std::optional<std::string_view> GgufFile::text(std::string_view key) const {
  const Value* value = scalar(key);
  if (value == nullptr) return {};
  if (value->type != kString) wrong_type(key, "a text");
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()) + 8, value->bytes.size() - 8);
}

bool GgufFile::is_array(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->second.array;
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return {};
  const Value& value = found->second;
  if (!value.array || value.type != kString) wrong_type(key, "an array of texts");
  std::vector<std::string_view> out;
  Cursor cursor(*this, value.bytes);
  for (uint64_t i = 0; i < value.count; ++i) out.push_back(cursor.take_text(kTextLimit, key));
  return out;
}

std::optional<std::vector<int64_t>> GgufFile::whole_numbers(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return {};
  const Value& value = found->second;
  const uint64_t width = kValueBytes[value.type];
  std::vector<int64_t> out;
  for (uint64_t i = 0; i < value.count; ++i) {
    const std::optional<int64_t> item =
        value.array && width > 0 ? integer_at(value.type, value.bytes.subspan(i * width, width)) : std::nullopt;
    if (!item) wrong_type(key, "an array of whole numbers");
    out.push_back(*item);
  }
  return out;
}

StoredTensors GgufFile::take_tensors() {
  values_.clear();
  stored_.files.push_back(std::move(file_));
  return std::move(stored_);
}

}  // namespace shardscope::runtime
