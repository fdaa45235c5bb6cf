#include <catch2/catch.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/seeds.hpp"
#include "tests/kernels/cuda/conditions.hpp"

namespace shardscope::test {
namespace {

std::string reported() {
  std::string text;
  for (const emulation::Report& report : emulation::take_reports()) text += report.message + "\n";
  return text;
}

}  // namespace

void under_each_seed(const Conditions& conditions, const std::function<void(uint64_t seed)>& body) {
  for (const uint64_t seed : seeds_to_try(conditions.seeds)) {
    INFO("seed " << seed);
    emulation::restart({.seed = seed, .devices = conditions.devices, .multiprocessors = conditions.multiprocessors});
    try {
      body(seed);
    } catch (const std::runtime_error& error) {  // a call that failed because of what the kernel did
      FAIL(error.what() << "\n" << reported());
    }
    CHECK(reported() == "");
    // A checker that silently does not see a kernel would report nothing too.
    for (const emulation::KernelCounters& counters : emulation::counters()) {
      INFO(counters.kernel);
      CHECK((counters.accesses > 0) == emulation::checked());
    }
  }
}

void under_conditions(const Conditions& conditions, const std::function<void()>& body) {
  under_each_seed(conditions, [&](uint64_t) { body(); });
}

int device_of_rank(int rank) {
  return rank;
}

}  // namespace shardscope::test
