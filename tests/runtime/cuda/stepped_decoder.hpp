// A decoder that tests lead step by step, some of the steps with their operations' times noted.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/cuda/backend.hpp"
#include "runtime/decoder.hpp"
#include "runtime/generate/sampler.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/model/slice.hpp"

namespace shardscope::test {

class SteppedDecoder {
 public:
  struct Options {
    int64_t batch = 1;
    int64_t prompt_tokens = 4;
    int64_t positions = 32;
  };

  SteppedDecoder(const runtime::OpenedModel& model, runtime::RankContext context, const Options& options)
      : context_(context),
        options_(options),
        decoder_(model.config, *model.weights,
                 parallel::plan_shards(runtime::shard_dimensions(model.config), context.communicator.size()),
                 {.slots = options.batch,
                  .max_positions = options.positions,
                  .max_step_tokens = options.batch * options.prompt_tokens,
                  .precision = context.backend.precision()},
                 context),
        sampler_(context.backend, context.communicator, decoder_.vocab_range(), model.config.vocab, options.batch) {}

  /// The prompt: a step that does not decode. Begins anew.
  void prefill() {
    done_ = 0;
    step(options_.prompt_tokens);
  }
  void decode() { step(1); }

  /// Of the latest step: this rank's logits, row after row, and the tokens that were chosen.
  std::vector<float> logits() {
    std::vector<float> all;
    for (int64_t row = 0; row < options_.batch; ++row) {
      const std::span<const float> values = context_.backend.host_logits(logits_, row);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  const std::vector<int32_t>& chosen() const { return chosen_; }
  const runtime::Decoder& decoder() const { return decoder_; }

  /// The kinds of the operations that the latest step noted.
  std::vector<kernels::Operation> noted() {
    std::vector<kernels::Operation> operations;
    for (const kernels::OperationTimes& times : context_.backend.step_times()) operations.push_back(times.operation);
    return operations;
  }

 private:
  void step(int64_t count) {
    std::vector<int32_t> ids;
    std::vector<int32_t> rows;
    std::vector<kernels::StepSequence> sequences;
    std::vector<runtime::SampleRow> asked;
    for (int64_t slot = 0; slot < options_.batch; ++slot) {
      sequences.push_back({.slot = slot, .first_position = done_, .count = count});
      for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(7 * slot + done_ + i));
      rows.push_back(static_cast<int32_t>(ids.size()) - 1);
      asked.push_back({.request = slot, .position = done_ + count, .history = {}, .options = &greedy_});
    }
    logits_ = decoder_.forward(ids, sequences, rows);
    chosen_.resize(static_cast<size_t>(options_.batch));
    sampler_.sample(logits_, asked, chosen_);
    done_ += count;
  }

  runtime::RankContext context_;
  Options options_;
  runtime::Decoder decoder_;
  runtime::Sampler sampler_;
  runtime::SamplingOptions greedy_;
  kernels::Activations logits_;
  std::vector<int32_t> chosen_;
  int64_t done_ = 0;
};

/// What a decode step of so many layers consists of, on a rank with a share of everything. summed: by a group.
/// exchanged: its candidates go from device to device.
inline std::vector<kernels::Operation> decode_operations(int64_t layers, bool summed, bool exchanged) {
  using kernels::Operation;
  std::vector<Operation> operations;
  const auto then = [&](std::initializer_list<Operation> these) {
    for (const Operation operation : these) {
      if (operation != Operation::kSum || summed) operations.push_back(operation);
    }
  };
  then({Operation::kEmbedding, Operation::kSum});
  for (int64_t layer = 0; layer < layers; ++layer) {
    then({Operation::kProduct, Operation::kAttention, Operation::kProduct, Operation::kSum});
    then({Operation::kProduct, Operation::kProduct, Operation::kSum});
  }
  then({Operation::kHead, Operation::kCandidates});
  if (exchanged) then({Operation::kExchange});
  return operations;
}

/// "", or where times contradict the stream's order: an operation that ends before it begins or before its predecessor
/// ends, or begins before the one before that has ended: so far early starts may go.
inline std::string disorder(std::span<const kernels::OperationTimes> times, int64_t not_before_ns) {
  for (size_t i = 0; i < times.size(); ++i) {
    const kernels::OperationTimes& one = times[i];
    const char* wrong = nullptr;
    if (one.begin_ns < not_before_ns) wrong = "began before its step";
    if (one.end_ns < one.begin_ns) wrong = "ended before it began";
    if (i >= 1 && one.end_ns < times[i - 1].end_ns) wrong = "ended before its predecessor";
    if (i >= 2 && one.begin_ns < times[i - 2].end_ns) wrong = "began too early";
    if (one.arrived_ns >= 0 && (one.arrived_ns < one.begin_ns || one.arrived_ns > one.end_ns)) {
      wrong = "saw the last rank come before it began, or after it ended";
    }
    if (wrong != nullptr) return fmt::format("operation {} {}", i, wrong);
  }
  return "";
}

}  // namespace shardscope::test
