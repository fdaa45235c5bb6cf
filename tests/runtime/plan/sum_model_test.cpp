#include "runtime/plan/sum_model.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "topology/device_peaks.hpp"

namespace shardscope::runtime {
namespace {

GroupLinks nvswitch(double gb_per_s) {
  return {.path = GroupPath::kNvLink, .gb_per_s = gb_per_s, .topology_class = topology::TopologyClass::kNvSwitch};
}
GroupLinks path(GroupPath path, double gb_per_s = 31.5) {
  return {.path = path, .gb_per_s = gb_per_s, .topology_class = topology::TopologyClass::kPcie};
}

TEST_CASE("SumModel: at a table's sizes its times, between them logarithmic, below its least as that") {
  const SumModel sums(plan_constants(), "h100-sxm", nvswitch(450), "nccl");
  CHECK(sums.us(8, 8192) == Approx(16.0));
  CHECK(sums.us(8, 16384) == Approx(18.4));  // 19.0 measured, but 32 KiB took 18.4
  CHECK(sums.us(8, 11585) == Approx(std::sqrt(16.0 * 18.4)).epsilon(1e-4));
  CHECK(sums.us(8, 2) == Approx(16.0));
  CHECK(sums.us(1, 1 << 20) == 0);
  CHECK(sums.backing(8).calibrated);
  CHECK_THROWS_AS(sums.us(0, 8), BugError);
  CHECK_THROWS_AS(sums.us(2, 0), BugError);
}

TEST_CASE("SumModel: between ranks of a table it lies between them, beyond it grows with the steps of a ring") {
  const SumModel sums(plan_constants(), "a100-40gb", nvswitch(300), "nccl");
  CHECK(sums.us(2, 8192) < sums.us(3, 8192));
  CHECK(sums.us(3, 8192) < sums.us(4, 8192));
  CHECK(sums.backing(3).calibrated);
  CHECK(sums.us(16, 8192) == Approx(21.3 * (6.6 + 30 * 0.6 + 8192 * (30.0 / 16) / (0.25 * 300e3)) /
                                    (6.6 + 14 * 0.6 + 8192 * (14.0 / 8) / (0.25 * 300e3))));
  CHECK_FALSE(sums.backing(16).calibrated);
}

TEST_CASE("SumModel: large messages move 2 (n - 1) / n of their bytes at the link's share") {
  const SumModel sums(plan_constants(), "a100-80gb-sxm", nvswitch(300), "nccl");
  constexpr int64_t kGiB = int64_t{1} << 30;
  const double bus = static_cast<double>(kGiB) * 1.75 / sums.us(8, kGiB) / 1e3;
  CHECK(bus == Approx(0.78 * 300).epsilon(0.02));
}

TEST_CASE("SumModel: one-shot is taken where it is the faster, and never through host memory") {
  const SumModel one_shot(plan_constants(), "h100-sxm", nvswitch(450), "one-shot");
  const SumModel nccl(plan_constants(), "h100-sxm", nvswitch(450), "nccl");
  CHECK(one_shot.us(8, 8192) == Approx(3.5));
  CHECK(one_shot.us(8, 64 << 20) <= nccl.us(8, 64 << 20));
  const SumModel host(plan_constants(), "rtx-pro-6000", path(GroupPath::kHostMemory, 63), "one-shot");
  const SumModel host_nccl(plan_constants(), "rtx-pro-6000", path(GroupPath::kHostMemory, 63), "nccl");
  CHECK(host.us(4, 8192) == host_nccl.us(4, 8192));
  CHECK_FALSE(host.backing(4).calibrated);
}

TEST_CASE("SumModel: a table of PCIe is of its own GPUs alone") {
  const SumModel own(plan_constants(), "rtx-pro-6000", path(GroupPath::kPciePeer, 63), "one-shot");
  CHECK(own.us(4, 8192) == Approx(6.4));
  CHECK(own.backing(4).calibrated);
  const SumModel other(plan_constants(), "l40s", path(GroupPath::kPciePeer), "one-shot");
  CHECK(other.us(4, 8192) == Approx(6.9 + 6 * 1.04 + 8192 * 1.5 / (0.25 * 31.5e3)));
  CHECK_FALSE(other.backing(4).calibrated);
}

TEST_CASE("SumModel: the farther the path, the longer") {
  const auto us = [](GroupPath one, double gb) {
    return SumModel(plan_constants(), "l40s", path(one, gb), "nccl").us(8, 16384);
  };
  CHECK(us(GroupPath::kPciePeer, 31.5) < us(GroupPath::kHostMemory, 31.5));
  CHECK(SumModel(plan_constants(), "a100-40gb", nvswitch(300), "nccl").us(8, 16384) < us(GroupPath::kHostMemory, 31.5));
}

SumTable own_table(const char* way, int ranks, double us) {
  return {.gpu = "",
          .topology_class = {},
          .way = way,
          .ranks = ranks,
          .what = "mine",
          .us = {{8192, us}, {1 << 20, us}},
          .origin = {}};
}

TEST_CASE("SumModel: what the user measured goes before the tables") {
  SumTable own = own_table("nccl", 4, 30);
  own.us = {{8192, 30.0}, {16384, 20.0}, {32768, 40.0}};
  const SumModel sums(plan_constants(), "a100-40gb", nvswitch(300), "nccl", {own});
  CHECK(sums.us(4, 8192) == Approx(20.0));  // the larger message took 20
  CHECK(sums.us(4, 32768) == Approx(40.0));
  CHECK(sums.backing(4).text == "mine");
  CHECK(sums.us(2, 8192) == Approx(11.0));
}

TEST_CASE("SumModel: a user's NCCL is not beaten by a one-shot that somebody else measured") {
  const SumModel sums(plan_constants(), "a100-40gb", nvswitch(300), "one-shot", {own_table("nccl", 4, 30)});
  CHECK(sums.us(4, 8192) == Approx(30));
  CHECK(sums.backing(4).text == "mine");
  const SumModel both(plan_constants(), "a100-40gb", nvswitch(300), "one-shot",
                      {own_table("nccl", 4, 30), own_table("one-shot", 4, 9)});
  CHECK(both.us(4, 8192) == Approx(9));
}

TEST_CASE("SumModel: a user's one-shot is not for software that sums by NCCL, nor through the host") {
  const std::vector<SumTable> own = {own_table("nccl", 4, 30), own_table("one-shot", 4, 2)};
  CHECK(SumModel(plan_constants(), "a100-40gb", nvswitch(300), "nccl", own).us(4, 8192) == Approx(30));
  CHECK(SumModel(plan_constants(), "l40s", path(GroupPath::kHostMemory), "one-shot", own).us(4, 8192) == Approx(30));
}

TEST_CASE("SumModel: times of one process for all GPUs stand alone") {
  SumTable own = own_table("nccl", 8, 37);
  own.one_process = true;
  const SumModel sums(plan_constants(), "a100-40gb", nvswitch(300), "nccl", {own});
  CHECK(sums.us(8, 8192) == Approx(37));
  CHECK(sums.us(4, 8192) ==
        Approx(37 * (6.6 + 6 * 0.6 + 8192 * 1.5 / (0.25 * 300e3)) / (6.6 + 14 * 0.6 + 8192 * 1.75 / (0.25 * 300e3))));
  CHECK_FALSE(sums.backing(4).calibrated);
}

TEST_CASE("SumModel: where a ring of NVLinks leaves pairs unlinked, NCCL goes around it and one-shot cannot") {
  GroupLinks ring = nvswitch(150);
  ring.topology_class = topology::TopologyClass::kCubeMesh;
  ring.all_pairs = false;
  const SumModel sums(plan_constants(), "v100-sxm2-16gb", ring, "one-shot");
  CHECK(sums.us(8, 8192) == SumModel(plan_constants(), "v100-sxm2-16gb", ring, "nccl").us(8, 8192));
  CHECK_FALSE(sums.backing(8).calibrated);
}

TEST_CASE("SumModel: never less for more bytes, on any GPU, path and number of ranks") {
  for (const topology::DevicePeaks& gpu : topology::device_peaks()) {
    for (const GroupLinks& links : {nvswitch(300), path(GroupPath::kPciePeer), path(GroupPath::kHostMemory)}) {
      for (const char* way : {"nccl", "one-shot"}) {
        const SumModel sums(plan_constants(), gpu.name, links, way);
        for (int ranks = 2; ranks <= 16; ++ranks) {
          double before = 0;
          for (double bytes = 2; bytes < 1e10; bytes *= 1.37) {
            const double us = sums.us(ranks, static_cast<int64_t>(bytes));
            if (!(us >= before * (1 - 1e-12)) || !std::isfinite(us)) FAIL(gpu.name << " " << ranks << " " << bytes);
            before = us;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace shardscope::runtime
