#include "runtime/resident_weights.hpp"

#include <initializer_list>
#include <utility>

#include "runtime/model/slice.hpp"

namespace shardscope::runtime {
namespace {

using kernels::DType;
using Roles = std::initializer_list<Role>;

/// Calls visit(where it is kept, the roles that are stacked there, layer or -1) for everything that a model of this
/// configuration keeps, in order of loading: what every decode step reads lies together, behind an embedding that is no
/// head. `weights` has all layers.
template <class Visit>
void visit_weights(const ModelConfig& config, ResidentWeights& weights, Visit& visit) {
  visit(weights.embedding, {Role::kEmbedding}, -1);
  if (!config.tied_embeddings) visit(weights.head, {Role::kHead}, -1);
  visit(weights.final_norm, {Role::kFinalNorm}, -1);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    LayerWeights& of = weights.layers[static_cast<size_t>(layer)];
    visit(of.attention_norm, {Role::kAttentionNorm}, layer);
    visit(of.qkv, {Role::kQuery, Role::kKey, Role::kValue}, layer);
    if (config.attention_in_bias) visit(of.qkv_bias, {Role::kQueryBias, Role::kKeyBias, Role::kValueBias}, layer);
    visit(of.attention_out, {Role::kAttentionOut}, layer);
    if (config.attention_out_bias) visit(of.attention_out_bias, {Role::kAttentionOutBias}, layer);
    visit(of.ffn_norm, {Role::kFfnNorm}, layer);
    if (config.gated_mlp) {
      visit(of.gate_up, {Role::kGate, Role::kUp}, layer);
    } else {
      visit(of.gate_up, {Role::kUp}, layer);
    }
    if (config.mlp_bias) visit(of.gate_up_bias, {Role::kGateBias, Role::kUpBias}, layer);
    visit(of.down, {Role::kDown}, layer);
    if (config.mlp_bias) visit(of.down_bias, {Role::kDownBias}, layer);
  }
}

ResidentWeights unloaded(const ModelConfig& config) {
  ResidentWeights weights;
  weights.layers.resize(static_cast<size_t>(config.layers));
  return weights;
}

struct Slice {
  WeightId id;
  DType dtype;
  WeightSlice of;
};

std::vector<Slice> slices(const WeightShard& shard, Roles roles, int64_t layer) {
  std::vector<Slice> result;
  for (const Role role : roles) {
    const WeightId id{role, layer};
    const DType dtype = shard.source.dtype(id);
    result.push_back({id, dtype, slice_of(shard.config, role, dtype, shard.plan, shard.rank)});
  }
  return result;
}

std::vector<kernels::MatrixPart> matrix_parts(std::span<const Slice> slices) {
  std::vector<kernels::MatrixPart> parts;
  for (const Slice& slice : slices) {
    parts.push_back({.name = std::string(rule_of(slice.id.role).hf_name),
                     .dtype = slice.dtype,
                     .rows = slice.of.rows.size(),
                     .columns = slice.of.columns.size()});
  }
  return parts;
}

int64_t vector_size(std::span<const Slice> slices) {
  int64_t size = 0;
  for (const Slice& slice : slices) size += slice.of.empty() ? 0 : slice.of.columns.size();
  return size;
}

class Announcer {
 public:
  explicit Announcer(const WeightShard& shard) : shard_(shard) {}

  void operator()(const std::unique_ptr<kernels::Matrix>&, Roles roles, int64_t layer) {
    weights_.matrices.push_back(matrix_parts(slices(shard_, roles, layer)));
  }
  void operator()(const std::unique_ptr<kernels::Vector>&, Roles roles, int64_t layer) {
    const int64_t size = vector_size(slices(shard_, roles, layer));
    if (size > 0) weights_.vectors.push_back(size);
  }

  kernels::ExpectedWeights take() { return std::move(weights_); }

 private:
  const WeightShard& shard_;
  kernels::ExpectedWeights weights_;
};

class Loader {
 public:
  Loader(const WeightShard& shard, kernels::Backend& backend, const std::function<void(int64_t)>& told)
      : shard_(shard), backend_(backend), told_(told) {}

  void operator()(std::unique_ptr<kernels::Matrix>& to, Roles roles, int64_t layer) {
    const std::vector<Slice> parts = slices(shard_, roles, layer);
    to = backend_.load_matrix(matrix_parts(parts), [&](int64_t part, Range rows, std::span<std::byte> out) {
      const auto& [id, dtype, slice] = parts[static_cast<size_t>(part)];
      shard_.source.read(id, {slice.rows.begin + rows.begin, slice.rows.begin + rows.end}, slice.columns, out);
      bytes_ += static_cast<int64_t>(out.size());
      told_(bytes_);
    });
  }

  /// The roles' slices one after another as one fp32 vector; null where the rank has none of them.
  void operator()(std::unique_ptr<kernels::Vector>& to, Roles roles, int64_t layer) {
    std::vector<float> values;
    for (const auto& [id, dtype, slice] : slices(shard_, roles, layer)) {
      if (slice.empty()) continue;
      std::vector<std::byte> stored(static_cast<size_t>(slice.bytes(dtype)));
      shard_.source.read(id, slice.rows, slice.columns, stored);
      const size_t before = values.size();
      values.resize(before + static_cast<size_t>(slice.columns.size()));
      kernels::dequantise_row(dtype, stored, std::span(values).subspan(before));
    }
    bytes_ += static_cast<int64_t>(values.size() * sizeof(float));
    if (!values.empty()) to = backend_.load_vector(values);
  }

  int64_t bytes() const { return bytes_; }

 private:
  const WeightShard& shard_;
  kernels::Backend& backend_;
  const std::function<void(int64_t)>& told_;
  int64_t bytes_ = 0;
};

}  // namespace

std::vector<const kernels::Matrix*> ResidentWeights::read_every_step() const {
  std::vector<const kernels::Matrix*> matrices;
  for (const LayerWeights& layer : layers) {
    matrices.insert(matrices.end(),
                    {layer.qkv.get(), layer.attention_out.get(), layer.gate_up.get(), layer.down.get()});
  }
  matrices.push_back(&output_head());
  return matrices;
}

kernels::ExpectedWeights announced_weights(const WeightShard& shard) {
  ResidentWeights nowhere = unloaded(shard.config);
  Announcer announcer(shard);
  visit_weights(shard.config, nowhere, announcer);
  return announcer.take();
}

int64_t stored_bytes(const kernels::ExpectedWeights& weights) {
  int64_t bytes = 0;
  for (const std::vector<kernels::MatrixPart>& parts : weights.matrices) {
    for (const kernels::MatrixPart& part : parts) bytes += part.rows * kernels::row_bytes(part.dtype, part.columns);
  }
  for (const int64_t size : weights.vectors) bytes += size * kernels::facts(DType::kF32).block_bytes;
  return bytes;
}

ResidentWeights load_weights(const WeightShard& shard, kernels::Backend& backend,
                             const std::function<void(int64_t bytes)>& told) {
  backend.expect_weights(announced_weights(shard));
  ResidentWeights weights = unloaded(shard.config);
  Loader loader(shard, backend, told);
  visit_weights(shard.config, weights, loader);
  weights.bytes = loader.bytes();
  return weights;
}

}  // namespace shardscope::runtime
