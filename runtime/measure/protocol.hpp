// How a point is measured: warm-up until steady, when to stop, in which order. Knows no clock, no rank and no device:
// a Machine does what it says, so that tests drive it with a fake one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

inline constexpr int64_t kLeastWarmUp = 3;     // generations
inline constexpr int64_t kSteadyWindow = 3;    // generations whose median is compared with that of as many before
inline constexpr double kSteadyChange = 0.01;  // steady: the medians differ by less
inline constexpr int64_t kLongestWarmUp = 30;  // generations, of one visit

struct Protocol {
  std::optional<int64_t> warmup;  // exactly so many generations a visit; nullopt: until steady
  std::optional<int64_t>
      iterations;  // so many generations in all, unless a limit ends them; nullopt: until the noise is low
  int64_t least_generations = 12;  // in all, before the noise may end a point
  double noise_bound = 0.02;       // of relative_noise within the first visit; of Noise::relative for the verdict
  // Of measured generations of a point in all; warm-up: half as long, or as long until two windows are full.
  double max_seconds = 30;
  bool instrumented = false;  // generations with instruments alternate with the others; --attribution
  uint64_t seed = 0;          // of the order

  /// In words: what ends a point.
  std::string stop_rule() const;
  /// Degrees are visited twice, up and down; with one single generation there is nothing for a second visit.
  int passes() const { return iterations == 1 ? 1 : 2; }
};

/// Change of the median latency over the last two windows; nullopt with fewer than 2 x kSteadyWindow values.
std::optional<double> steadiness(std::span<const double> latencies_ms);

/// Half the 95 % interval of the median / the median; nullopt while the interval is open (n < 6).
std::optional<double> relative_noise(std::span<const double> values);

/// What a visit has measured of a point so far.
struct VisitSoFar {
  int pass = 0;
  int64_t first_visit = 0;         // generations of the first visit; 0: this is the first
  std::span<const double> values;  // headline figures of this visit
  double seconds = 0;
};

/// Whether that is enough. A second visit makes as many generations as the first, so that neither weighs more.
struct StopVerdict {
  bool enough = false;
  std::optional<std::string> unmet;  // a limit ended it: which, and the condition that was not met
};
StopVerdict stop_verdict(const Protocol& protocol, const VisitSoFar& visit);

/// Order in which `count` points take their turn in round `round`: a seeded shuffle.
std::vector<size_t> round_order(size_t count, uint64_t seed, int64_t round);

/// What the protocol drives: one group at one degree, with its shards resident. Points are numbered as in `run_visit`.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual GenerationSample generate(size_t point) = 0;
  /// The same, with instruments; nullopt: this machine has none, or the workload no decode step.
  virtual std::optional<InstrumentedSample> generate_instrumented(size_t point) = 0;
  /// Read bandwidth over what a step of the point reads; called once before and once after its measured generations.
  virtual void measure_bandwidth(size_t point, bool after) = 0;
  virtual double now_seconds() = 0;  // a steady clock
  /// What rank 0 of the group decided: every rank goes the same way. Collective.
  virtual bool agree(bool mine) = 0;
  /// Called before each step. fraction: of the visit done, estimated.
  virtual void tell(size_t point, const char* doing, int64_t generation, double fraction) = 0;
};

/// What one visit measured at one point.
struct VisitRecord {
  WarmUp warm_up;
  std::optional<double> cold_ttft_ms;  // of the first generation after loading; of the first point alone
  std::vector<GenerationSample> samples;
  std::vector<InstrumentedSample> instrumented;
  double seconds = 0;  // that the measured generations took, those with instruments too
  std::optional<std::string> unmet;
};

/// Warms every point up, then measures them in interleaved rounds until each has enough. With instruments each round
/// has a generation of either kind, in alternating order, so that what drifts is in both. first_visit [points]: of each
/// point the generations that its first visit made, 0 where this is the first; what rank 0 has there counts.
/// Collective.
std::vector<VisitRecord> run_visit(Machine& machine, const Protocol& protocol, int pass,
                                   std::span<const int64_t> first_visit);

/// TPOT, or TTFT where a generation has one token: the value that noise, outliers and stop rules look at.
std::optional<double> headline_ms(const GenerationSample& sample);

}  // namespace shardscope::runtime
