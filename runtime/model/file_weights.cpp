#include "runtime/model/file_weights.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"

namespace shardscope::runtime {
namespace {

constexpr size_t kRoles = 19;

struct Bound {
  const std::byte* data = nullptr;
  kernels::DType dtype = kernels::DType::kF32;
  WeightShape shape;
  bool interleaved = false;
};

class FileWeights final : public WeightSource {
 public:
  FileWeights(const ModelConfig& config, std::vector<MappedFile> files, std::string identity)
      : layers_(config.layers), head_dim_(config.head_dim), files_(std::move(files)), identity_(std::move(identity)) {
    bound_.resize(kRoles * static_cast<size_t>(layers_ + 1));
  }

  void bind(WeightId id, const Bound& bound) { bound_[index(id)] = bound; }

  kernels::DType dtype(WeightId id) const override { return at(id).dtype; }

  void read(WeightId id, Range rows, Range columns, std::span<std::byte> out) const override {
    const Bound& tensor = at(id);
    require(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= tensor.shape.rows && columns.begin >= 0 &&
                columns.begin <= columns.end && columns.end <= tensor.shape.columns,
            "WeightSource::read: outside the tensor");
    const int64_t width = kernels::row_bytes(tensor.dtype, columns.size());
    require(static_cast<int64_t>(out.size()) == rows.size() * width, "WeightSource::read: the buffer has another size");
    if (out.empty()) return;
    if (tensor.shape.rows == 1 && tensor.interleaved) return read_interleaved_vector(tensor, columns, out);
    const int64_t stride = kernels::row_bytes(tensor.dtype, tensor.shape.columns);
    const int64_t skip = kernels::row_bytes(tensor.dtype, columns.begin);
    if (width == stride && !tensor.interleaved) {
      std::memcpy(out.data(), tensor.data + rows.begin * stride, out.size());
      return;
    }
    std::byte* target = out.data();
    for (int64_t row = rows.begin; row < rows.end; ++row, target += width) {
      const int64_t stored_row = tensor.interleaved ? interleaved(row) : row;
      std::memcpy(target, tensor.data + stored_row * stride + skip, static_cast<size_t>(width));
    }
  }

  std::string identity() const override { return identity_; }

 private:
  size_t index(WeightId id) const {
    const bool per_layer = rule_of(id.role).per_layer;
    require(per_layer ? id.layer >= 0 && id.layer < layers_ : id.layer == -1, "WeightSource: no such layer");
    return static_cast<size_t>(id.role) * static_cast<size_t>(layers_ + 1) + static_cast<size_t>(id.layer + 1);
  }

  const Bound& at(WeightId id) const {
    const Bound& tensor = bound_[index(id)];
    require(tensor.data != nullptr, "WeightSource: the model has no such tensor");
    return tensor;
  }

  /// Where the file keeps a row that the model knows in half-split order: half-split row h*D + i (i < D/2) is
  /// interleaved row h*D + 2i, and h*D + D/2 + i is h*D + 2i + 1.
  int64_t interleaved(int64_t row) const {
    const int64_t in_head = row % head_dim_;
    const int64_t half = head_dim_ / 2;
    return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  }

  void read_interleaved_vector(const Bound& tensor, Range elements, std::span<std::byte> out) const {
    const int64_t width = kernels::row_bytes(tensor.dtype, 1);
    std::byte* target = out.data();
    for (int64_t element = elements.begin; element < elements.end; ++element, target += width) {
      std::memcpy(target, tensor.data + interleaved(element) * width, static_cast<size_t>(width));
    }
  }

  int64_t layers_;
  int64_t head_dim_;
  std::vector<MappedFile> files_;
  std::string identity_;
  std::vector<Bound> bound_;  // [role, layer + 1]
};

bool is_rotary(Role role) {
  return role == Role::kQuery || role == Role::kKey || role == Role::kQueryBias || role == Role::kKeyBias;
}

/// Tensors that writers leave in files although no model reads them.
bool is_known_buffer(std::string_view name) {
  static constexpr std::array<std::string_view, 3> kEndings = {"rotary_emb.inv_freq", "attn.masked_bias",
                                                               "rope_freqs.weight"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

/// The layer number in a tensor's name, or -1.
int64_t layer_in(std::string_view name, Naming naming) {
  const std::string_view prefix = naming == Naming::kGguf ? "blk." : "model.layers.";
  if (!name.starts_with(prefix)) return -1;
  int64_t layer = -1;
  const std::string_view rest = name.substr(prefix.size());
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return error == std::errc() && end != rest.data() + rest.size() && *end == '.' ? layer : -1;
}

Bound checked(const ModelConfig& config, const StoredTensor& tensor, Role role, bool interleaved_rotary) {
  const WeightShape shape = shape_of(config, role);
  const bool vector = rule_of(role).vector;
  const std::vector<int64_t> wanted = vector ? std::vector{shape.columns} : std::vector{shape.rows, shape.columns};
  if (tensor.shape != wanted) {
    throw UserError(fmt::format("tensor {} has the shape [{}] but the configuration says [{}]", printable(tensor.name),
                                fmt::join(tensor.shape, ", "), fmt::join(wanted, ", ")),
                    tensor.file, "use a configuration and weights that belong together");
  }
  if (!tensor.dtype || (vector && kernels::facts(*tensor.dtype).block_quantised)) {
    throw UserError(fmt::format("tensor {} is stored as {}, which cannot be run", printable(tensor.name), tensor.type),
                    tensor.file, "convert the checkpoint to F32, F16, BF16, or in GGUF matrices to Q4_0, Q4_1, Q8_0");
  }
  const int64_t bytes = kernels::row_bytes(*tensor.dtype, shape.columns) * shape.rows;
  require(static_cast<int64_t>(tensor.data.size()) == bytes, "bind_weights: a reader gave a tensor of another size");
  return {tensor.data.data(), *tensor.dtype, shape, interleaved_rotary && is_rotary(role)};
}

}  // namespace

const StoredTensor* find_tensor(const StoredTensors& stored, std::string_view name) {
  const auto found = std::find_if(stored.tensors.begin(), stored.tensors.end(),
                                  [&](const StoredTensor& tensor) { return tensor.name == name; });
  return found == stored.tensors.end() ? nullptr : &*found;
}

void settle_by_file(ModelConfig& config, const StoredTensors& stored) {
  config.tied_embeddings = find_tensor(stored, weight_name({Role::kHead}, stored.naming)) == nullptr;
  std::map<std::string_view, int64_t> bytes;  // by block format
  for (const StoredTensor& tensor : stored.tensors) {
    if (!tensor.dtype || !kernels::facts(*tensor.dtype).block_quantised) continue;
    bytes[kernels::facts(*tensor.dtype).name] += static_cast<int64_t>(tensor.data.size());
  }
  const auto largest =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  config.quantisation = largest == bytes.end() ? "none" : std::string(largest->first);
}

std::unique_ptr<WeightSource> bind_weights(const ModelConfig& config, StoredTensors stored) {
  std::unordered_map<std::string_view, size_t> places;
  for (size_t i = 0; i < stored.tensors.size(); ++i) places.emplace(stored.tensors[i].name, i);
  auto source =
      std::make_unique<FileWeights>(config, std::move(stored.files), fmt::format("{:016x}", stored.identity_hash));
  std::vector<bool> used(stored.tensors.size(), false);
  for (const WeightId id : expected_weights(config)) {
    const std::string name = weight_name(id, stored.naming);
    const auto place = places.find(name);
    if (place == places.end()) {
      throw UserError(fmt::format("tensor {} is missing", name), stored.where, "use a complete checkpoint");
    }
    used[place->second] = true;
    source->bind(id, checked(config, stored.tensors[place->second], id.role, stored.interleaved_rotary));
  }
  for (size_t i = 0; i < used.size(); ++i) {
    const StoredTensor& tensor = stored.tensors[i];
    const int64_t layer = layer_in(tensor.name, stored.naming);
    const bool cut_off = layer >= config.layers && layer < config.layers_in_file;
    if (used[i] || cut_off || is_known_buffer(tensor.name)) continue;
    throw UserError(fmt::format("tensor {} is in the file but no part of this model uses it", printable(tensor.name)),
                    tensor.file, "use a configuration and weights that belong together");
  }
  return source;
}

}  // namespace shardscope::runtime
