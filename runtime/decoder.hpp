// The model of one rank: its shard of the weights, its KV cache, and the order of operations of a layer (this file's
// .cpp alone knows it). Tokens in, the rank's slice of the logits out. Leaves sampling, text and time to others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/shard_plan.hpp"
#include "parallel/world.hpp"
#include "runtime/model/config.hpp"
#include "runtime/model/weights.hpp"

namespace shardscope::runtime {

/// What a rank works with. Borrowed: all of them outlive the decoder.
struct RankContext {
  kernels::Backend& backend;
  parallel::Communicator& communicator;  // of the tensor-parallel group
  parallel::World& world;                // told about progress
};

struct DecoderOptions {
  int64_t slots = 1;                                 // sequences in the KV cache
  int64_t max_positions = 0;                         // longest sequence
  int64_t max_step_tokens = 512;                     // tokens of one forward pass; longer prompts go in pieces
  int64_t logit_rows = 0;                            // rows of logits that one pass can give; 0: one per slot
  kernels::Precision precision;                      // of the backend
  int64_t valid_vocab = 0;                           // token ids from here on are never drawn; 0: all may be
  std::function<void(int64_t weight_bytes)> loaded;  // told while loading how much is there; may be empty

  int64_t most_logit_rows() const { return logit_rows > 0 ? logit_rows : slots; }
  int64_t valid_vocab_of(const ModelConfig& config) const { return valid_vocab > 0 ? valid_vocab : config.vocab; }
};

/// Bytes that a rank keeps resident, by purpose.
struct MemoryBytes {
  int64_t weights = 0;
  int64_t kv = 0;
  int64_t workspace = 0;
};

class Decoder {
 public:
  /// Loads the rank's shard; collective over the communicator's group only through later calls.
  Decoder(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
          const DecoderOptions& options, RankContext context);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder();

  /// One forward pass of the whole group over `token_ids` (sum of the sequences' counts, at most max_step_tokens).
  /// Returns logits [logit_rows.size(), vocab_range().size()] of the tokens with those indices; valid until the next
  /// call. logit_rows may be empty: then nothing beyond the KV cache is computed. Allocates nothing.
  kernels::Activations forward(std::span<const int32_t> token_ids, std::span<const kernels::StepSequence> sequences,
                               std::span<const int32_t> logit_rows);

  Range vocab_range() const;  // the rank's columns of the logits
  const ModelConfig& config() const;
  const DecoderOptions& options() const;
  MemoryBytes memory() const;  // allocated
  /// What a decode step reads: all matrices but the embedding (unless it is the head too).
  std::span<const kernels::Matrix* const> read_every_step() const;
  const kernels::KvCache& kv_cache() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Memory of rank `rank` without loading anything. Weights, as stored, and KV are exact; the workspace leaves out the
/// padding of rows to cache lines.
MemoryBytes planned_memory(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
                           const DecoderOptions& options, int rank);

/// planned_memory of all ranks together.
int64_t planned_group_bytes(const ModelConfig& config, const WeightSource& source, const parallel::ShardPlan& plan,
                            const DecoderOptions& options);

/// Bytes of the sums of activations that steps of so many tokens make over the ranks of a group on devices, for
/// CommunicatorOptions::message_bytes. decoding: sequences of steps that decode; prefill: tokens of the others.
std::vector<int64_t> all_reduce_bytes(const ModelConfig& config, const kernels::Backend& backend,
                                      std::span<const int64_t> decoding, std::span<const int64_t> prefill);

/// The most floats that a step of the decoder sums over the ranks: for CommunicatorOptions::max_floats.
int64_t largest_all_reduce_floats(const ModelConfig& config, const DecoderOptions& options);

}  // namespace shardscope::runtime
