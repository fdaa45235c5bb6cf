// The table of GPU peaks against clocks and widths that drivers report, and the rule by which the two disagree.
#include "topology/device_peaks.hpp"

#include <limits>
#include <set>

#include <catch2/catch.hpp>

namespace shardscope::topology {
namespace {

using Catch::Matchers::Contains;

const DevicePeaks& row(std::string_view name) {
  const DevicePeaks* found = find_device_peaks(name);
  REQUIRE(found != nullptr);
  return *found;
}

TEST_CASE("device_peaks: names are unique, lower-case and found again, every row has its source") {
  std::set<std::string_view> names;
  for (const DevicePeaks& peaks : device_peaks()) {
    INFO(peaks.name);
    CHECK(names.insert(peaks.name).second);
    CHECK_FALSE(peaks.name.empty());
    CHECK(peaks.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos);
    CHECK_FALSE(peaks.source.empty());
    CHECK(find_device_peaks(peaks.name) == &peaks);
  }
  CHECK(names.size() >= 20);
  for (const char* unknown : {"", "a100", "A100-40GB", "a100-40gb ", "a100-40g"}) {
    CHECK(find_device_peaks(unknown) == nullptr);
  }
}

TEST_CASE("device_peaks: figures are plausible, and each type's ratio to fp16 is that of dense tensor cores") {
  for (const DevicePeaks& peaks : device_peaks()) {
    INFO(peaks.name);
    CHECK(peaks.memory_gb >= 16);
    CHECK(peaks.memory_gb <= 300);
    CHECK(peaks.gb_per_s >= 300);
    CHECK(peaks.gb_per_s <= 10'000);
    if (!peaks.fp16_tflops) continue;
    // 989 x 2 = 1978 where the sheet has 1979: each figure is rounded on its own. GeForce cards halve fp16 with fp32
    // accumulation, so their int8 is four times as fast.
    const bool geforce = peaks.name.starts_with("rtx-");
    const bool tensor_cores_have_int8 = !peaks.name.starts_with("v100");
    if (peaks.bf16_tflops) CHECK(*peaks.bf16_tflops == *peaks.fp16_tflops);
    if (peaks.int8_tops && tensor_cores_have_int8) {
      CHECK(*peaks.int8_tops == Approx((geforce ? 4 : 2) * *peaks.fp16_tflops).epsilon(0.02));
    }
    if (peaks.fp8_tflops) CHECK(*peaks.fp8_tflops == Approx(2 * *peaks.fp16_tflops).epsilon(0.02));
  }
}

TEST_CASE("device_peaks: dense numbers, not the sparse ones that sheets print") {
  CHECK(row("a100-40gb").fp16_tflops == 312);  // sparse 624
  CHECK(row("a100-40gb").int8_tops == 624);    // sparse 1248
  CHECK(row("h100-sxm").fp16_tflops == 989);   // sparse 1979
  CHECK(row("h100-sxm").fp8_tflops == 1979);   // sparse 3958
  CHECK(row("l4").fp16_tflops == 121);         // sparse 242
  CHECK(row("b200").bf16_tflops == 2250);      // sparse 4500
}

TEST_CASE("device_peaks: models of one name differ in memory") {
  CHECK(row("a100-40gb").gb_per_s == 1555);
  CHECK(row("a100-80gb-sxm").gb_per_s == 2039);
  CHECK(row("a100-80gb-pcie").gb_per_s == 1935);
  CHECK(row("h100-pcie").gb_per_s == 2039);
  CHECK(row("h100-sxm").gb_per_s == 3350);
  CHECK(row("h100-nvl").gb_per_s == 3900);
  CHECK(row("h200").gb_per_s == 4800);
  CHECK(row("gh200-96gb").gb_per_s == 4000);
  CHECK(row("gh200-144gb").gb_per_s == 4900);
}

TEST_CASE("device_peaks: a type that the GPU lacks is unknown, not 0") {
  CHECK_FALSE(row("v100-sxm2-32gb").bf16_tflops);
  CHECK_FALSE(row("v100-sxm2-32gb").fp8_tflops);
  CHECK_FALSE(row("a100-80gb-sxm").fp8_tflops);
  CHECK_FALSE(row("rtx-pro-6000").fp16_tflops);
}

TEST_CASE("device_peaks: the fp32-accumulate figure where a sheet has two") {
  CHECK(row("rtx-3090").fp16_tflops == 71);
  CHECK(row("rtx-4090").fp16_tflops == 165);
  CHECK(row("rtx-4090").fp8_tflops == 330);
  CHECK(row("rtx-5090").fp16_tflops == 210);
  CHECK(row("rtx-5090").fp8_tflops == 419);
}

TEST_CASE("bandwidth_of_clock: 1215 MHz x 5120 bit, twice a clock, is the A100-40GB's 1555 GB/s") {
  CHECK(bandwidth_of_clock(1215, 5120) == Approx(1555.2).epsilon(1e-12));
}

TEST_CASE("peak_disagreement: silent where the right row meets the clock and width of its device") {
  struct Driver {
    const char* name;
    double clock_mhz;
    int width_bits;
  };
  for (const Driver& driver :
       {Driver{"v100-sxm2-16gb", 877, 4096}, Driver{"a100-40gb", 1215, 5120}, Driver{"a100-80gb-sxm", 1593, 5120},
        Driver{"a100-80gb-pcie", 1512, 5120}, Driver{"t4", 5001, 256}, Driver{"a10g", 6251, 384},
        Driver{"l4", 6251, 192}, Driver{"l40s", 9001, 384}, Driver{"h100-pcie", 1593, 5120},
        Driver{"h100-sxm", 2619, 5120}, Driver{"h200", 3201, 6144}, Driver{"rtx-3090", 9751, 384},
        Driver{"rtx-4090", 10501, 384}, Driver{"rtx-5090", 14001, 512}}) {
    INFO(driver.name);
    CHECK_FALSE(peak_disagreement(row(driver.name), driver.clock_mhz, driver.width_bits));
  }
}

TEST_CASE("peak_disagreement: the clock of an A100-80GB against the row of the 40GB warns, with both numbers") {
  const std::optional<std::string> warning = peak_disagreement(row("a100-40gb"), 1593, 5120);
  REQUIRE(warning);
  CHECK_THAT(*warning, Contains("a100-40gb") && Contains("1555 GB/s") && Contains("1593 MHz x 5120 bit = 2039 GB/s"));
  CHECK(warning->find('\n') == std::string::npos);
  CHECK(peak_disagreement(row("a100-80gb-sxm"), 1215, 5120));
  CHECK(peak_disagreement(row("h100-sxm"), 1593, 5120));
}

TEST_CASE("peak_disagreement: at 3 % silent, beyond it not, in both directions") {
  const DevicePeaks peaks{.name = "made-up", .gb_per_s = 1000};
  // 4000 bit: 1 MHz is 1 GB/s.
  CHECK_FALSE(peak_disagreement(peaks, 1030, 4000));
  CHECK(peak_disagreement(peaks, 1030.001, 4000));
  CHECK_FALSE(peak_disagreement(peaks, 970, 4000));
  CHECK(peak_disagreement(peaks, 969.999, 4000));
}

TEST_CASE("peak_disagreement: a driver that tells nothing is no disagreement") {
  CHECK_FALSE(peak_disagreement(row("h200"), 0, 6144));
  CHECK_FALSE(peak_disagreement(row("h200"), 3201, 0));
  CHECK_FALSE(peak_disagreement(row("h200"), std::numeric_limits<double>::quiet_NaN(), 6144));
}

}  // namespace
}  // namespace shardscope::topology
