// What the host gets of a step's logits: the best of each row, which a step prepares; more of them, by another launch;
// or whole rows, which then are the host's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/cuda/recordings.hpp"
#include "kernels/cuda/step_timer.hpp"

namespace shardscope::cuda {

/// Memory that candidates() needs, zero-filled once; what is large enough serves smaller calls too.
class CandidateWorkspaces {
 public:
  void* of(Device& device, int64_t rows, int64_t columns, int64_t count);

 private:
  struct Entry {
    int64_t rows, columns, count;
    DeviceBuffer memory;
  };
  std::vector<Entry> entries_;
};

class Logits {
 public:
  Logits(Device& device, StepTimer& timer);

  void exchange_by(CandidatesExchange exchange) { exchange_ = std::move(exchange); }
  /// Enqueues the best of each row, their exchange among ranks where there is one, and their copy to the host.
  void prepare(CudaRecordings& recordings, kernels::Activations logits, int64_t valid_columns, int64_t first_id);
  /// A new step: rows of the last one are gone. `done`: when it ends.
  void begin(cudaEvent_t done);

  /// False if nothing was exchanged.
  bool best_of_group(const CudaRecordings& recordings, const kernels::Activations& logits,
                     std::span<kernels::Candidate> out);
  int64_t top(const CudaRecordings& recordings, kernels::Activations logits, int64_t row, int64_t valid_columns,
              int64_t first_id, std::span<kernels::Candidate> out);
  kernels::Candidate draw(kernels::Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                          const kernels::Noise& noise);
  std::span<float> host_row(kernels::Activations logits, int64_t row);

 private:
  bool on_host(kernels::Activations logits, int64_t row) const;
  void wait_for_step();
  void ask_device(kernels::Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                  const CandidateNoise* noise, std::span<kernels::Candidate> out);

  Device& device_;
  StepTimer& timer_;
  cudaEvent_t done_ = nullptr;
  bool step_done_ = true;
  Event copied_;
  CandidateWorkspaces workspaces_;
  CandidatesExchange exchange_;
  DeviceBuffer top_;
  PinnedBuffer top_on_host_;
  DeviceBuffer noise_;  // of one row
  PinnedBuffer noise_on_host_;
  struct HostRow {
    PinnedBuffer memory;
    const void* logits = nullptr;  // whose row it is in this step; null: nobody's
  };
  std::vector<HostRow> host_rows_;  // by row
};

}  // namespace shardscope::cuda
