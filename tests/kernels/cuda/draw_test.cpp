// Drawing from the whole vocabulary on the device, as the backend asks for it, against the host's way.
#include <catch2/catch.hpp>

#include <algorithm>

#include "kernels/base/keyed_random.hpp"
#include "kernels/cuda/logits.hpp"
#include "tests/kernels/cuda/conditions.hpp"
#include "tests/kernels/cuda/device_array.hpp"
#include "tests/kernels/reference.hpp"

using namespace shardscope;
using namespace shardscope::test;

// An endless temperature is nothing but noise, a tiny one none; neither must overflow what the kernel is given.
TEST_CASE("cuda draw: the host's token at every temperature") {
  under_conditions({.seeds = 1}, [] {
    constexpr int64_t kColumns = 900;
    std::vector<float> values = random_values(kColumns, 1);
    for (float& value : values) value = 40 + 10 * value;
    const float largest = *std::max_element(values.begin(), values.end());
    const DeviceArray<float> memory(values);
    const kernels::Activations logits{memory.data(), 1, kColumns, kColumns, kernels::DType::kF32};
    cuda::Device device(cuda::BackendOptions{});
    cuda::StepTimer timer(device);
    cuda::Logits of_device(device, timer);
    for (const double temperature : {1e-300, 1e-40, 1e-3, 0.7, 30.0, 1e38, 1e60, 1e300}) {
      for (const uint64_t position : {1, 2, 3}) {
        INFO("temperature " << temperature << ", position " << position);
        const kernels::Noise noise{
            .key = position_key(8, 1, position), .temperature = temperature, .reference = largest};
        const kernels::Candidate expected = kernels::noisiest(values, 70, noise);
        CHECK(of_device.draw(logits, 0, kColumns, 70, noise).token_id == expected.token_id);
      }
    }
  });
}
