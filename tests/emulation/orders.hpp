// Runs a test's body first come, first served, and in a few random orders.
#pragma once

#include <catch2/catch.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/seeds.hpp"
#include "tests/emulation/stand.hpp"

namespace shardscope::test {

/// One line with all reports that nobody has taken; empty if there are none.
inline std::string unread_reports() {
  std::string text;
  for (const emulation::Report& report : emulation::take_reports()) {
    text += report.message + "; ";
  }
  return text;
}

/// body(stand) with the seeds 0 (first come, first served) to `last_seed`; each on a fresh machine, after which there
/// must be neither an error of the runtime nor a report.
template <class Body>
void under_orders(const Body& body, emulation::Options options = {}, uint64_t last_seed = 5) {
  for (const uint64_t seed : seeds_to_try(last_seed)) {
    INFO("seed " << seed);
    options.seed = seed;
    emulation::restart(options);
    Stand stand;
    body(stand);
    stand.finish();
    CHECK(unread_reports() == "");
    CHECK(stand.error() == cudaSuccess);
  }
}

}  // namespace shardscope::test
