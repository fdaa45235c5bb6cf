#include "runtime/model/safetensors.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"

namespace shardscope::runtime {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "both weight formats are little-endian");

constexpr uint64_t kHeaderLimit = 100'000'000;
constexpr int64_t kIndexLimit = 64 << 20;
constexpr std::string_view kRemedy = "fetch or write the file again";

struct TypeFacts {
  std::string_view name;
  int64_t bits;
  std::optional<kernels::DType> dtype;
};

constexpr std::array<TypeFacts, 22> kTypes = {{
    {"F32", 32, kernels::DType::kF32},
    {"F16", 16, kernels::DType::kF16},
    {"BF16", 16, kernels::DType::kBF16},
    {"BOOL", 8, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"C64", 64, {}},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
}};

/// Reads one file; carries the path for errors.
class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path) {}

  StoredTensors read() {
    const std::span<const std::byte> bytes = file_.bytes();
    const std::string_view header = header_text();
    const json root = parse_json(header, file_.path());
    StoredTensors stored;
    stored.where = file_.path();
    for (const auto& [name, entry] : root.items()) {
      if (name == "__metadata__") {
        check_metadata(entry);
      } else {
        stored.tensors.push_back(tensor(name, entry));
      }
    }
    check_cover(stored.tensors, header.size() + 8);
    const uint64_t size = bytes.size();
    const uint64_t header_hash = fnv1a(std::as_bytes(std::span(&size, 1)), fnv1a(bytes.first(header.size() + 8)));
    stored.identity_hash = fnv1a_sampled(data_, header_hash);
    stored.files.push_back(std::move(file_));
    return stored;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw UserError(what, file_.path(), kRemedy); }

  std::string_view header_text() {
    const std::span<const std::byte> bytes = file_.bytes();
    if (bytes.size() < 8)
      fail(fmt::format("the file has {} bytes, too few for a safetensors header length", bytes.size()));
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    if (length > kHeaderLimit)
      fail(fmt::format("header length {} is above the format's limit {}", length, kHeaderLimit));
    if (length > bytes.size() - 8) {
      fail(fmt::format("header length {} runs past the end of the file ({} bytes)", length, bytes.size()));
    }
    const std::string_view header = file_.text().substr(8, length);
    if (!header.starts_with('{')) fail("the header does not begin with {");
    data_ = bytes.subspan(8 + length);
    return header;
  }

  void check_metadata(const json& entry) const {
    if (!entry.is_object()) fail("__metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail(fmt::format("__metadata__ \"{}\" is not a text", printable(key)));
    }
  }

  /// An offset or dimension: a whole number from 0 to 2^63 - 1.
  int64_t whole_number(const json& value, const std::string& name, std::string_view what) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      fail(fmt::format("tensor {}: {} is not a whole number in range", printable(name), what));
    }
    return value.get<int64_t>();
  }

  StoredTensor tensor(const std::string& name, const json& entry) const {
    const std::string label = printable(name);
    if (!entry.is_object()) fail(fmt::format("tensor {}: its entry is not an object", label));
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (!entry.contains(key)) fail(fmt::format("tensor {}: {} is missing", label, key));
    }
    StoredTensor tensor;
    tensor.name = name;
    tensor.file = file_.path();

    const json& dtype = entry["dtype"];
    const TypeFacts* type = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeFacts& known) {
      return dtype.is_string() && dtype.get_ref<const std::string&>() == known.name;
    });
    if (type == kTypes.end()) fail(fmt::format("tensor {}: unknown dtype {}", label, printable(dtype.dump())));
    tensor.type = type->name;
    tensor.dtype = type->dtype;

    const json& shape = entry["shape"];
    if (!shape.is_array()) fail(fmt::format("tensor {}: shape is not a list", label));
    int64_t bits = type->bits;
    for (const json& dimension : shape) {
      tensor.shape.push_back(whole_number(dimension, name, "a dimension of its shape"));
      if (__builtin_mul_overflow(bits, tensor.shape.back(), &bits)) {
        fail(fmt::format("tensor {}: the product of its shape is too large", label));
      }
    }
    const json& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2)
      fail(fmt::format("tensor {}: data_offsets are not two numbers", label));
    const int64_t begin = whole_number(offsets[0], name, "its first offset");
    const int64_t end = whole_number(offsets[1], name, "its second offset");
    if (begin > end) fail(fmt::format("tensor {}: ends at {} before it begins at {}", label, end, begin));
    if (bits % 8 != 0 || end - begin != bits / 8) {
      fail(fmt::format("tensor {}: {} bytes from {} to {}, but dtype and shape make {}", label, end - begin, begin, end,
                       bits / 8));
    }
    if (static_cast<uint64_t>(end) > data_.size()) {
      fail(fmt::format("tensor {}: ends at {} but the file holds {} bytes of data (truncated?)", label, end,
                       data_.size()));
    }
    tensor.data = data_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    return tensor;
  }

  /// The tensors must cover the data exactly, without hole or overlap.
  void check_cover(std::vector<StoredTensor>& tensors, size_t data_start) const {
    const auto begin_of = [&](const StoredTensor& tensor) { return tensor.data.data() - data_.data(); };
    std::stable_sort(tensors.begin(), tensors.end(), [&](const StoredTensor& a, const StoredTensor& b) {
      return std::pair(begin_of(a), a.data.size()) < std::pair(begin_of(b), b.data.size());
    });
    int64_t end = 0;
    for (const StoredTensor& tensor : tensors) {
      const int64_t begin = begin_of(tensor);
      if (begin != end) {
        fail(fmt::format("tensor {}: begins at {}, {} the end {} of the one before", printable(tensor.name), begin,
                         begin < end ? "overlapping" : "leaving a hole after", end));
      }
      end = begin + static_cast<int64_t>(tensor.data.size());
    }
    if (static_cast<uint64_t>(end) != data_.size()) {
      fail(fmt::format("the file has {} bytes but header and tensors make {}", data_start + data_.size(),
                       data_start + static_cast<uint64_t>(end)));
    }
  }

  MappedFile file_;
  std::span<const std::byte> data_;
};

/// file name -> tensors that the index promises in it
std::map<std::string, std::vector<std::string>> read_index(const std::string& path) {
  const auto fail = [&](const std::string& what) { throw UserError(what, path, "use the checkpoint's own index"); };
  const json root = parse_json(read_text_file(path, kIndexLimit), path);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object()) {
    fail("the index has no weight_map");
  }
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, value] : root["weight_map"].items()) {
    if (!value.is_string()) fail(fmt::format("weight_map of {} is not a file name", printable(tensor)));
    const std::string& file = value.get_ref<const std::string&>();
    if (file.find('/') != std::string::npos || file.find('\0') != std::string::npos ||
        !file.ends_with(".safetensors")) {
      fail(fmt::format("weight_map of {} is \"{}\": only names of .safetensors files in the same folder are followed",
                       printable(tensor), printable(file)));
    }
    shards[file].push_back(tensor);
  }
  if (shards.empty()) fail("weight_map is empty");
  return shards;
}

}  // namespace

StoredTensors read_safetensors(const std::string& path) {
  return Reader(path).read();
}

StoredTensors read_sharded_safetensors(const std::string& index_path) {
  const std::filesystem::path folder = std::filesystem::path(index_path).parent_path();
  const std::map<std::string, std::vector<std::string>> shards = read_index(index_path);
  for (const auto& [file, tensors] : shards) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / file, ignored)) continue;
    throw UserError(fmt::format("shard {} is missing ({} tensors, the first {})", printable(file), tensors.size(),
                                printable(tensors.front())),
                    index_path, "fetch all files of the checkpoint");
  }
  StoredTensors all;
  all.where = index_path;
  all.identity_hash = fnv1a({});
  for (const auto& [file, promised] : shards) {
    StoredTensors shard = read_safetensors((folder / file).string());
    std::unordered_map<std::string_view, bool> listed;  // by the index
    for (const StoredTensor& tensor : shard.tensors) listed.emplace(tensor.name, false);
    for (const std::string& name : promised) {
      const auto found = listed.find(name);
      if (found == listed.end()) {
        throw UserError(
            fmt::format("the index says that tensor {} is in {}, but it is not", printable(name), printable(file)),
            index_path, "use the checkpoint's own index");
      }
      found->second = true;
    }
    for (const StoredTensor& tensor : shard.tensors) {
      if (listed.at(tensor.name)) continue;
      throw UserError(fmt::format("tensor {} is in {}, but the index does not list it there", printable(tensor.name),
                                  printable(file)),
                      index_path, "use the checkpoint's own index");
    }
    all.identity_hash = fnv1a(std::as_bytes(std::span(&shard.identity_hash, 1)), all.identity_hash);
    std::move(shard.files.begin(), shard.files.end(), std::back_inserter(all.files));
    std::move(shard.tensors.begin(), shard.tensors.end(), std::back_inserter(all.tensors));
  }
  return all;
}

}  // namespace shardscope::runtime
