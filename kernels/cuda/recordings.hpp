// The steps of one decoder: the words that tell the device which tokens a step has, and the graphs of steps that
// decode. A graph's kernels read words, angles and candidates at fixed addresses, so that replaying it needs no change
// to it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/candidates.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/step_timer.hpp"

namespace shardscope::cuda {

/// Where a step's words are in device memory. Of a step that decodes: as many sequences as tokens, both padded.
struct StepView {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t most_tokens = 0;  // of a sequence
  bool decodes = false;
  const int32_t* ids = nullptr;        // [tokens]; padding: -1
  const int32_t* positions = nullptr;  // [tokens]; padding: -1
  const int32_t* slots = nullptr;      // [tokens]; of a step that decodes, also of its sequences
  const int32_t* lengths = nullptr;    // [sequences] of a step that decodes; padding: 0
  // [sequences + 1], [sequences], [sequences], [selected] of any other step
  const int32_t* first_tokens = nullptr;
  const int32_t* first_positions = nullptr;
  const int32_t* sequence_slots = nullptr;
  const int32_t* selected_rows = nullptr;
  const float2* rotary = nullptr;  // [tokens][pairs]
};

/// The best of each row of some logits, on their way to the host or there.
struct PreparedCandidates {
  const void* logits = nullptr;  // null: none were prepared
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t first_id = 0;
  bool exchanged = false;  // they are the group's, not this rank's
};

/// How far a step's sequences may go in the caches that it uses.
struct CacheLimits {
  int64_t slots = 0;
  int64_t positions = 0;
};

class CudaRecordings final : public kernels::StepRecordings {
 public:
  /// timer: of all steps on the device.
  CudaRecordings(Device& device, StepTimer& timer, int64_t most_tokens);

  /// Copies the words of a step to the device, and enqueues the angles of its positions where `decodes` is false (a
  /// recorded step has that in its graph). Returns where they will be.
  StepView upload(const kernels::Step& step, int64_t padded_tokens);
  void enqueue_angles(const StepView& view);

  /// Calls enqueue, or replays what it enqueued with as many rows before, if times were noted then as they are now.
  void replay_or_record(int64_t rows, bool graphs, const std::function<void()>& enqueue);

  /// Room for the best candidate of so many rows: device and host.
  CandidateOut* best_on_device() const { return best_.as<CandidateOut>(); }
  const CandidateOut* best() const { return best_on_host_.as<CandidateOut>(); }
  int64_t most_rows() const { return most_rows_; }
  /// Whether what is enqueued now is recorded, not run.
  bool recording() const { return recording_; }

  PreparedCandidates prepared;        // by the step that ran last
  std::optional<CacheLimits> limits;  // of all caches that the steps used so far

 private:
  struct Recording {
    int64_t rows = 0;
    bool noting = false;                         // when its operations ran
    GraphExec graph;                             // none: has run once, which allocated and chose what it needs
    PreparedCandidates prepared;                 // by it
    std::vector<kernels::Operation> operations;  // of which it notes that
  };
  struct Slot {
    PinnedBuffer words;
    Event copied;
    bool busy = false;
  };

  void use_frequencies(const kernels::Step& step);
  void record(Recording& recording, const std::function<void()>& enqueue);

  Device& device_;
  StepTimer& timer_;
  int64_t most_rows_;
  uint64_t steps_ = 0;
  bool recording_ = false;
  DeviceBuffer words_;
  std::array<Slot, 2> slots_;
  std::vector<float> frequencies_on_host_;
  float rotary_scale_ = 1;
  DeviceBuffer frequencies_;
  DeviceBuffer angles_;
  DeviceBuffer best_;
  PinnedBuffer best_on_host_;
  std::vector<Recording> recordings_;
};

}  // namespace shardscope::cuda
