// Where a step's time goes, in parts. Values; what each part is stands in attribution.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

namespace shardscope::runtime {

enum class Part : uint8_t {
  kIdealMemory,
  kMatrixLoss,
  kAttention,
  kElementwise,
  kAllreduceTransfer,
  kAllreduceWait,
  kHeadAndSampling,
  kGaps,
  kResidual,
};
inline constexpr std::array kParts = {
    Part::kIdealMemory,   Part::kMatrixLoss,      Part::kAttention, Part::kElementwise, Part::kAllreduceTransfer,
    Part::kAllreduceWait, Part::kHeadAndSampling, Part::kGaps,      Part::kResidual};

/// As in documents: "matrix_loss".
std::string_view name_of(Part part);
/// For people: "small matrices".
std::string_view words_of(Part part);

/// Milliseconds of a decode step, by part; may be negative.
struct Parts {
  std::array<double, kParts.size()> ms{};

  double& operator[](Part part) { return ms[static_cast<size_t>(part)]; }
  double operator[](Part part) const { return ms[static_cast<size_t>(part)]; }
  double sum() const { return std::accumulate(ms.begin(), ms.end(), 0.0); }
  bool operator==(const Parts&) const = default;
};

/// Times of one rank in the decode steps of one instrumented generation, mean of the steps, in ms: each operation's
/// own, summed by what it does, and what lies between. They sum to the rank's step.
struct StepTimes {
  double products = 0;     // of weights, without the LM head
  double attention = 0;    // rotary, KV append, attention
  double elementwise = 0;  // embedding look-up, norms and row picks that are not fused elsewhere
  double head = 0;         // the LM head's product, candidates, their exchange without waiting, sampling
  double transfer = 0;     // inside all-reduces, after the last rank had arrived
  double wait = 0;         // inside all-reduces and exchanges, before it had
  double gaps = 0;         // between operations
  bool operator==(const StepTimes&) const = default;
};

inline constexpr std::array kStepTimes = {&StepTimes::products, &StepTimes::attention, &StepTimes::elementwise,
                                          &StepTimes::head,     &StepTimes::transfer,  &StepTimes::wait,
                                          &StepTimes::gaps};

/// A generation with instruments.
struct InstrumentedSample {
  int pass = 0;                  // as of GenerationSample
  double tpot_ms = 0;            // of the slowest rank
  std::vector<StepTimes> ranks;  // of each rank
};

}  // namespace shardscope::runtime
