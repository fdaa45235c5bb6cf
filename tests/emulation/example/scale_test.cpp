// Tests of the example of tests/emulation/README.md.
#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/example/scale.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/support/approx.hpp"

namespace shardscope::test {

TEST_CASE("scale: every element times the factor, at sizes with and without a tail") {
  const int64_t count = GENERATE(1, 3, 4, 255, 1024, 1025, 5003);
  under_conditions([&] {
    std::vector<float> values;
    std::vector<double> expected;
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<float>(i) - 100.5f);
      expected.push_back((static_cast<double>(i) - 100.5) * 0.75);  // exact in fp32
    }
    const DeviceArray<float> in(values);
    const DeviceArray<float> out(count);
    check_cuda(cuda::scale(in.data(), count, 0.75f, out.data(), nullptr), "scale");
    CHECK(first_difference(out.download(), expected, 0.0) == "");
  });
}

TEST_CASE("scale: loads and stores whole sectors, each byte once") {
  if (!emulation::checked()) return;  // only the checked mode counts
  emulation::restart({.count_requests = true});
  const DeviceArray<float> in(std::vector<float>(4096, 1.0f));
  const DeviceArray<float> out(4096);
  emulation::label(in.data(), "input");
  check_cuda(cuda::scale(in.data(), 4096, 2.0f, out.data(), nullptr), "scale");
  check_cuda(cudaDeviceSynchronize(), "scale");
  const emulation::KernelCounters counters = emulation::counters().at(0);
  CHECK(counters.bytes.at("input").loaded_bytes == 4096 * 4);
  CHECK(counters.global_loads.units == counters.global_loads.ideal_units);
  CHECK(counters.global_stores.units == counters.global_stores.ideal_units);
}

}  // namespace shardscope::test
