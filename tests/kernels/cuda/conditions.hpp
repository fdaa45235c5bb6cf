// Under which conditions the tests of the kernels run their bodies: on the emulation in several orders of threads, or
// once on real GPUs. One of emulated_conditions.cpp and gpu_conditions.cpp is linked.
#pragma once

#include <cstdint>
#include <functional>

namespace shardscope::test {

struct Conditions {
  int devices = 1;            // on real GPUs several ranks may have to share one: see device_of_rank
  int multiprocessors = 132;  // of an emulated device; launchers choose grids by it
  int seeds = 5;              // random orders on the emulation
};

/// Runs `body`, which makes and gives back all that it uses. Emulation: on a fresh machine each, first come, first
/// served and in conditions.seeds random orders, with a check that the kernels did nothing wrong.
void under_conditions(const Conditions& conditions, const std::function<void()>& body);
inline void under_conditions(const std::function<void()>& body) {
  under_conditions({}, body);
}

/// The same, for a body that draws numbers: it is told the seed of its order, on real GPUs each in turn.
void under_each_seed(const Conditions& conditions, const std::function<void(uint64_t seed)>& body);

/// The device on which rank `rank` of a test with several ranks runs.
int device_of_rank(int rank);

}  // namespace shardscope::test
