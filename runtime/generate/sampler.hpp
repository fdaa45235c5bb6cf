// Which token comes next. The ranks of a group hold slices of the logits and exchange candidates, never whole rows;
// every rank draws the same token, because the random numbers are keyed by (seed, request, position, token id): neither
// TP degree nor batching changes them. Order of the filters as in the Hugging Face reference: repetition penalty,
// temperature, top-k, top-p, min-p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/communicator.hpp"

namespace shardscope::runtime {

struct SamplingOptions {
  double temperature = 0;         // 0: greedy
  int64_t top_k = 0;              // 0: all
  double top_p = 1;               // 1: all
  double min_p = 0;               // 0: all
  double repetition_penalty = 1;  // 1: none
  uint64_t seed = 0;

  bool greedy() const { return temperature == 0; }
  /// Throws UserError naming the option that is out of range.
  void validate() const;
};

/// What the sampler has to know about one row of logits.
struct SampleRow {
  int64_t request = 0;               // number of the request, part of the key of its random numbers
  int64_t position = 0;              // of the token to be drawn
  std::span<const int32_t> history;  // prompt and output so far, for the repetition penalty
  const SamplingOptions* options = nullptr;
};

class Sampler {
 public:
  /// vocab: the rank's columns; valid_vocab: ids at or beyond it have no token and are never drawn.
  Sampler(kernels::Backend& backend, parallel::Communicator& communicator, Range vocab, int64_t valid_vocab,
          int64_t max_rows);

  /// One token id per row of logits [rows.size(), vocab.size()]; the same on every rank of the group. Collective.
  /// Throws SystemError when logits are not finite. Greedy sampling allocates nothing.
  void sample(kernels::Activations logits, std::span<const SampleRow> rows, std::span<int32_t> token_ids);

  /// The k largest logits of a row over the whole vocabulary, descending, before any penalty. Collective.
  std::vector<kernels::Candidate> top_logits(kernels::Activations logits, int64_t row, int64_t k);

  /// The most floats that one exchange moves: for CommunicatorOptions::max_floats.
  static int64_t max_exchange_floats(int64_t max_rows);

 private:
  void exchange_best(kernels::Activations logits, std::span<const SampleRow> rows);
  void best_of_own(kernels::Activations logits, std::span<const SampleRow> rows);
  /// largest: the row's largest logit over the whole vocabulary, after the penalty.
  int32_t draw(kernels::Activations logits, int64_t row, float largest, const SampleRow& what);
  int32_t draw_from_all(kernels::Activations logits, int64_t row, float largest, const SampleRow& what);
  int32_t draw_from_candidates(kernels::Activations logits, int64_t row, const SampleRow& what);
  void merge_candidates(kernels::Activations logits, int64_t row, int64_t k);

  kernels::Backend& backend_;
  parallel::Communicator& communicator_;
  Range vocab_;
  int64_t valid_columns_;
  int64_t valid_vocab_;
  std::vector<kernels::Candidate> mine_;
  std::vector<kernels::Candidate> all_;
  std::vector<float> largest_;  // of each row
};

}  // namespace shardscope::runtime
