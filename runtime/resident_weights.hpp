// The weights that a decoder keeps, stacked as its products use them, and the one list of them: what is announced to
// the backend, loaded and planned is the same. Knows no order of operations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/shard_plan.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

struct LayerWeights {
  std::unique_ptr<kernels::Vector> attention_norm;
  std::unique_ptr<kernels::Matrix> qkv;
  std::unique_ptr<kernels::Vector> qkv_bias;
  std::unique_ptr<kernels::Matrix> attention_out;
  std::unique_ptr<kernels::Vector> attention_out_bias;
  std::unique_ptr<kernels::Vector> ffn_norm;
  std::unique_ptr<kernels::Matrix> gate_up;
  std::unique_ptr<kernels::Vector> gate_up_bias;
  std::unique_ptr<kernels::Matrix> down;
  std::unique_ptr<kernels::Vector> down_bias;
};

/// Biases are null where the model or the rank has none.
struct ResidentWeights {
  std::unique_ptr<kernels::Matrix> embedding;
  std::unique_ptr<kernels::Matrix> head;  // null when tied: the embedding serves
  std::unique_ptr<kernels::Vector> final_norm;
  std::vector<LayerWeights> layers;
  int64_t bytes = 0;  // stored_bytes of all

  const kernels::Matrix& output_head() const { return head ? *head : *embedding; }
  /// All matrices but the embedding, unless it is the head too.
  std::vector<const kernels::Matrix*> read_every_step() const;
};

/// The slices of `source` that one rank of the plan holds. Borrows all of them.
struct WeightShard {
  const ModelConfig& config;
  const WeightSource& source;
  const parallel::ShardPlan& plan;
  int rank = 0;
};

/// All that load_weights asks a backend for, in that order. Reads no weights.
kernels::ExpectedWeights announced_weights(const WeightShard& shard);

/// Matrices as stored, vectors in fp32; nothing of how a backend places them.
int64_t stored_bytes(const kernels::ExpectedWeights& weights);

/// Announces the shard's weights to the backend and loads them. told: how many bytes are there, chunk by chunk.
ResidentWeights load_weights(const WeightShard& shard, kernels::Backend& backend,
                             const std::function<void(int64_t bytes)>& told);

}  // namespace shardscope::runtime
