#include "kernels/cuda/recordings.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/begin_step.hpp"

namespace shardscope::cuda {
namespace {

constexpr int64_t kWordBytes = 4;
// Words of a token: id, position, slot; then length, or three of its sequence and one selection; and one more.
constexpr int64_t kWordsOfToken = 7;

/// Fills a step's words one list after another, the same lists in the same order on host and device.
class WordWriter {
 public:
  WordWriter(int32_t* host, const int32_t* device) : host_(host), device_(device) {}

  /// The next list: where it will be on the device. fill(list) writes its `count` words.
  template <class Fill>
  const int32_t* list(int64_t count, const Fill& fill) {
    fill(host_ + used_);
    const int32_t* const place = device_ + used_;
    used_ += count;
    return place;
  }
  int64_t used() const { return used_; }

 private:
  int32_t* host_;
  const int32_t* device_;
  int64_t used_ = 0;
};

void check(const kernels::Step& step) {
  int64_t tokens = 0;
  for (const kernels::StepSequence& sequence : step.sequences) {
    require(sequence.count >= 0 && sequence.first_position >= 0 && sequence.slot >= 0,
            "run_step: a negative count, position or slot");
    tokens += sequence.count;
  }
  require(tokens == std::ssize(step.token_ids), "run_step: counts of sequences do not sum to the tokens");
  for (const int32_t row : step.selected_rows) {
    require(row >= 0 && row < tokens, "select_rows: no such row");
  }
}

template <class Value>
void fill_tokens(const kernels::Step& step, int32_t* to, const Value& value) {
  for (const kernels::StepSequence& sequence : step.sequences) {
    for (int64_t i = 0; i < sequence.count; ++i) *to++ = static_cast<int32_t>(value(sequence, i));
  }
}

template <class Value>
void fill_sequences(const kernels::Step& step, int32_t* to, const Value& value) {
  for (const kernels::StepSequence& sequence : step.sequences) *to++ = static_cast<int32_t>(value(sequence));
}

}  // namespace

CudaRecordings::CudaRecordings(Device& device, StepTimer& timer, int64_t most_tokens)
    : device_(device), timer_(timer), most_rows_(std::max(most_tokens, bucket_of(most_tokens))) {
  const int64_t bytes = (kWordsOfToken * most_rows_ + 1) * kWordBytes;
  words_ = DeviceBuffer(bytes, "a step's tokens", device.where());
  for (Slot& slot : slots_) {
    slot.words = PinnedBuffer(bytes, "a step's tokens", device.where());
    slot.copied = make_event(device.where());
  }
  const auto best_bytes = most_rows_ * static_cast<int64_t>(sizeof(CandidateOut));
  best_ = DeviceBuffer(best_bytes, "candidates", device.where());
  best_on_host_ = PinnedBuffer(best_bytes, "candidates", device.where());
}

StepView CudaRecordings::upload(const kernels::Step& step, int64_t padded_tokens) {
  check(step);
  const auto tokens = std::ssize(step.token_ids);
  require(padded_tokens >= tokens && padded_tokens <= most_rows_, "run_step: more tokens than the recordings are for");
  require(std::ssize(step.sequences) <= most_rows_ && std::ssize(step.selected_rows) <= most_rows_,
          "run_step: more sequences or selected rows than tokens");
  use_frequencies(step);
  for (const kernels::StepSequence& sequence : step.sequences) {
    require(!limits || (sequence.slot < limits->slots && sequence.first_position + sequence.count <= limits->positions),
            "attention: a place beyond the cache");
  }
  Slot& slot = slots_[static_cast<size_t>(++steps_) % slots_.size()];
  if (slot.busy) device_.wait(slot.copied.get(), "copying a step's tokens");

  using Sequence = kernels::StepSequence;
  StepView view{.tokens = padded_tokens, .decodes = step.decodes(), .rotary = angles_.as<float2>()};
  WordWriter words(slot.words.as<int32_t>(), words_.as<int32_t>());
  const auto token_list = [&](const auto& fill, int32_t padding) {
    return words.list(padded_tokens, [&](int32_t* to) {
      fill(to);
      std::fill(to + tokens, to + padded_tokens, padding);
    });
  };
  view.ids = token_list([&](int32_t* to) { std::copy(step.token_ids.begin(), step.token_ids.end(), to); }, -1);
  view.positions = token_list(
      [&](int32_t* to) { fill_tokens(step, to, [](const Sequence& s, int64_t i) { return s.first_position + i; }); },
      -1);
  view.slots = token_list(
      [&](int32_t* to) { fill_tokens(step, to, [](const Sequence& s, int64_t /*i*/) { return s.slot; }); }, 0);
  if (view.decodes) {
    view.sequences = padded_tokens;
    view.most_tokens = 1;
    view.lengths = token_list(
        [&](int32_t* to) { fill_sequences(step, to, [](const Sequence& s) { return s.first_position + 1; }); }, 0);
  } else {
    view.sequences = std::ssize(step.sequences);
    for (const Sequence& sequence : step.sequences) view.most_tokens = std::max(view.most_tokens, sequence.count);
    view.first_tokens = words.list(view.sequences + 1, [&](int32_t* to) {
      int32_t first = 0;
      for (const Sequence& sequence : step.sequences) {
        *to++ = first;
        first += static_cast<int32_t>(sequence.count);
      }
      *to = first;
    });
    view.first_positions = words.list(view.sequences, [&](int32_t* to) {
      fill_sequences(step, to, [](const Sequence& s) { return s.first_position; });
    });
    view.sequence_slots = words.list(
        view.sequences, [&](int32_t* to) { fill_sequences(step, to, [](const Sequence& s) { return s.slot; }); });
    view.selected_rows = words.list(std::ssize(step.selected_rows), [&](int32_t* to) {
      std::copy(step.selected_rows.begin(), step.selected_rows.end(), to);
    });
  }
  device_.check(cudaMemcpyAsync(words_.data(), slot.words.data(), static_cast<size_t>(words.used() * kWordBytes),
                                cudaMemcpyHostToDevice, device_.lend_stream()),
                "cudaMemcpyAsync", [] { return "a step's tokens"; });
  device_.check(cudaEventRecord(slot.copied.get(), device_.stream()), "cudaEventRecord");
  slot.busy = true;
  prepared = {};
  return view;
}

void CudaRecordings::use_frequencies(const kernels::Step& step) {
  if (step.inverse_frequencies.empty()) return;
  if (!frequencies_on_host_.empty()) {
    require(step.inverse_frequencies.size() == frequencies_on_host_.size() && step.rotary_scale == rotary_scale_ &&
                std::equal(frequencies_on_host_.begin(), frequencies_on_host_.end(), step.inverse_frequencies.begin()),
            "run_step: other frequencies than before");
    return;
  }
  frequencies_on_host_.assign(step.inverse_frequencies.begin(), step.inverse_frequencies.end());
  rotary_scale_ = step.rotary_scale;
  const auto bytes = static_cast<int64_t>(step.inverse_frequencies.size_bytes());
  frequencies_ = DeviceBuffer(bytes, "rotary frequencies", device_.where());
  device_.check(cudaMemcpyAsync(frequencies_.data(), frequencies_on_host_.data(), static_cast<size_t>(bytes),
                                cudaMemcpyHostToDevice, device_.lend_stream()),
                "cudaMemcpyAsync", [] { return "rotary frequencies"; });
  angles_ = DeviceBuffer(most_rows_ * std::ssize(frequencies_on_host_) * static_cast<int64_t>(sizeof(float2)),
                         "rotary angles", device_.where());
}

void CudaRecordings::enqueue_angles(const StepView& view) {
  if (frequencies_on_host_.empty()) return;
  device_.check(rotary_angles({.tokens = view.tokens,
                               .pairs = std::ssize(frequencies_on_host_),
                               .positions = view.positions,
                               .inverse_frequencies = frequencies_.as<float>(),
                               .scale = rotary_scale_,
                               .out = angles_.as<float2>(),
                               .programmatic = device_.programmatic()},
                              device_.stream()),
                "rotary_angles", [&] { return fmt::format("{} tokens", view.tokens); });
}

void CudaRecordings::replay_or_record(int64_t rows, bool graphs, const std::function<void()>& enqueue) {
  if (!graphs || rows > kLargestBucket) {
    enqueue();
    return;
  }
  const auto known = std::find_if(recordings_.begin(), recordings_.end(), [&](const Recording& recording) {
    return recording.rows == rows && recording.noting == timer_.noting();
  });
  if (known == recordings_.end()) {
    enqueue();
    recordings_.push_back(
        {.rows = rows, .noting = timer_.noting(), .graph = {}, .prepared = prepared, .operations = {}});
    return;
  }
  if (!known->graph) record(*known, enqueue);
  device_.check(cudaGraphLaunch(known->graph.get(), device_.lend_stream()), "cudaGraphLaunch",
                [&] { return fmt::format("a step of {} tokens", rows); });
  prepared = known->prepared;
  timer_.replayed(known->operations);
}

void CudaRecordings::record(Recording& recording, const std::function<void()>& enqueue) {
  const std::string detail = fmt::format("a step of {} tokens", recording.rows);
  recording_ = true;
  try {
    recording.graph = capture(device_.lend_stream(), enqueue, device_.where(detail));
  } catch (...) {
    recording_ = false;
    throw;
  }
  recording_ = false;
  recording.prepared = prepared;
  recording.operations = timer_.operations();
}

}  // namespace shardscope::cuda
