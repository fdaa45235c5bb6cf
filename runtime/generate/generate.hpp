// Runs a static batch of requests to their ends: prefill of all prompts, then decode steps of all that still run.
// Every rank of the group makes the same calls. Leaves text, printing and clocks' meaning to the caller.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/decoder.hpp"
#include "runtime/generate/sampler.hpp"

namespace shardscope::runtime {

using Clock = std::chrono::steady_clock;

struct GenerationRequest {
  std::vector<int32_t> prompt_ids;  // at least one
  int64_t max_tokens = 0;
  SamplingOptions sampling;
  std::vector<int32_t> stop_ids;  // end tokens: generation ends with them; empty: run to max_tokens
};

enum class FinishReason : uint8_t { kLength, kStop };

struct GenerationResult {
  std::vector<int32_t> output_ids;  // an end token is the last of them
  FinishReason finish_reason = FinishReason::kLength;
  std::vector<double> token_times_ms;  // from the start of the batch, when each token was known on this rank
  std::vector<std::vector<kernels::Candidate>> top_logits;  // before each output token, if asked for
};

struct GenerateOptions {
  int64_t top_logits = 0;  // K
  /// Called on every rank after each token. On rank 0 a true return ends that request (a stop text was met); the
  /// others' returns are ignored.
  std::function<bool(size_t request, int32_t token_id)> on_token;
  bool callback_may_stop = false;  // then rank 0's verdict is broadcast after each step
  /// Called after each step and what was sampled from it. decodes: one token of each running request went in.
  std::function<void(bool decodes)> stepped;
};

/// Collective. Results are the same on every rank. Throws what the decoder and the communicator throw.
/// With callback_may_stop false and top_logits 0, greedy decode steps allocate nothing.
std::vector<GenerationResult> generate_batch(Decoder& decoder, Sampler& sampler, RankContext context,
                                             std::span<const GenerationRequest> requests,
                                             const GenerateOptions& options);

}  // namespace shardscope::runtime
