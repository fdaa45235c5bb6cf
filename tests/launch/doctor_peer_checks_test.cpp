// Checks of what is between GPUs, and of settings that change it, on made-up facts: each verdict of each.
#include <catch2/catch.hpp>

#include "tests/launch/doctor_facts_made_up.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using namespace shardscope::test;
using Catch::Matchers::Contains;

namespace {

/// A host's two GPUs on PCIe.
HostFacts host_on_pcie() {
  HostFacts host = host_with_gpus(2);
  topology::Topology& topology = host.gpus.topology;
  for (topology::Gpu& gpu : topology.gpus) {
    gpu.nvlinks = 0;
    gpu.ports.clear();
    gpu.fabric = "not supported";
  }
  for (int i = 0; i < 2; ++i) (*topology.links)[i][1 - i] = topology::Path{.kind = topology::PathKind::kPix};
  topology.switched = false;
  topology.warnings.clear();
  topology::understand(topology);
  return host;
}

TEST_CASE("doctor peer access: claimed, proved, refused, and lost") {
  const HostFacts host = host_on_pcie();
  const Finding proved = only(peer_findings({.tried = true, .ranks = 2}, host), "peer access");
  CHECK(proved.verdict == Verdict::kOk);
  CHECK_THAT(proved.evidence, Contains("proved between all 2 ranks") && Contains("the driver offers it between all"));
  const Finding alone = only(peer_findings({.why_not_tried = "that takes 2 ranks"}, host), "peer access");
  CHECK(alone.verdict == Verdict::kUnknown);
  CHECK_THAT(alone.evidence, Contains("not proved"));
  CHECK_THAT(alone.remedy, Contains("mpirun -np 2"));
  const Finding lost = only(
      peer_findings({.tried = true,
                     .failure = "writes of rank 0 do not arrive at rank 1, though the driver offers peer access, what "
                                "to do: switch off ACS",
                     .ranks = 2},
                    host),
      "peer access");
  CHECK(lost.verdict == Verdict::kProblem);
  CHECK_THAT(lost.evidence, Contains("do not arrive") && !Contains("what to do"));
  CHECK(lost.remedy == "switch off ACS");

  HostFacts refusing = host;
  (*refusing.gpus.topology.p2p)[0][1] = (*refusing.gpus.topology.p2p)[1][0] = "GNS";
  const Finding refused = only(
      peer_findings({.tried = true, .failure = "the driver offers no peer access from a to b", .ranks = 2}, refusing),
      "peer access");
  CHECK(refused.verdict == Verdict::kWarning);
  CHECK_THAT(refused.evidence, Contains("0 of 2 directions (GNS in the others)"));
  CHECK(only(peer_findings({.why_not_tried = "that takes 2 ranks"}, refusing), "peer access").verdict ==
        Verdict::kWarning);
}

TEST_CASE("doctor NCCL: right, failing, not tried") {
  const HostFacts host = host_on_pcie();
  const Finding right = only(peer_findings({.ranks = 2, .nccl_tried = true, .nccl_version = "2.27.7"}, host), "NCCL");
  CHECK(right.verdict == Verdict::kOk);
  CHECK_THAT(right.evidence, Contains("2.27.7, its sums over 2 ranks are right"));
  const Finding failing =
      only(peer_findings(
               {.ranks = 2, .nccl_tried = true, .nccl_failure = "ncclCommInitRank failed", .nccl_version = ""}, host),
           "NCCL");
  CHECK(failing.verdict == Verdict::kProblem);
  CHECK_THAT(failing.remedy, Contains("NCCL_DEBUG"));
  const std::string joined = "rank 0: NCCL error 2 (unhandled system error): ncclCommInitRankConfig, rank 0, device 0";
  const std::string advice = "set NCCL_DEBUG=INFO to see which system call failed: often /dev/shm is small";
  const Finding split =
      only(peer_findings({.ranks = 2, .nccl_tried = true, .nccl_failure = joined + ", " + advice}, host), "NCCL");
  CHECK(split.evidence == joined);
  CHECK(split.remedy == advice);
  CHECK(only(peer_findings({.why_not_tried = "that takes 2 ranks", .nccl_version = "2.27.7"}, host), "NCCL").verdict ==
        Verdict::kUnknown);
}

TEST_CASE("doctor ACS and IOMMU: redirecting bridges, root's secrets, translated addresses") {
  HostFacts host = host_on_pcie();
  PciFacts& pci = host.gpus.pci;
  CHECK(only(peer_findings({}, host), "ACS").verdict == Verdict::kOk);
  CHECK(only(peer_findings({}, host), "IOMMU").verdict == Verdict::kOk);
  pci.bridges.push_back({.bus_id = "0000:40:01.1", .acs_control = 0x001d});
  const Finding redirecting = only(peer_findings({}, host), "ACS");
  CHECK(redirecting.verdict == Verdict::kWarning);
  CHECK_THAT(redirecting.evidence, Contains("0x001d: 0000:40:01.1"));
  CHECK_THAT(redirecting.remedy, Contains("setpci -s 0000:40:01.1"));
  pci.bridges = {{.bus_id = "0000:00:01.0", .acs_control = std::nullopt, .readable = false}};
  const Finding secret = only(peer_findings({}, host), "ACS");
  CHECK(secret.verdict == Verdict::kUnknown);
  CHECK_THAT(secret.remedy, Contains("run as root"));
  pci.bridges.clear();
  CHECK(only(peer_findings({}, host), "ACS").verdict == Verdict::kUnknown);

  pci.gpus[1].iommu = "DMA-FQ";
  const Finding translated = only(peer_findings({}, host), "IOMMU");
  CHECK(translated.verdict == Verdict::kWarning);
  CHECK_THAT(translated.evidence, Contains(bus_id(1)) && !Contains(bus_id(0)));
  CHECK_THAT(translated.remedy, Contains("iommu=pt"));
  for (PciGpu& gpu : pci.gpus) gpu.iommu.clear();
  pci.iommus = 2;
  CHECK(only(peer_findings({}, host), "IOMMU").verdict == Verdict::kUnknown);
  pci.iommus = 0;
  CHECK(only(peer_findings({}, host), "IOMMU").verdict == Verdict::kOk);
}

TEST_CASE("doctor ACS: between GPUs that NVLinks join it does not matter") {
  HostFacts host = host_with_gpus(4);
  host.gpus.pci.bridges = {{.bus_id = "0000:00:01.0", .acs_control = 0x001d}};
  host.gpus.pci.gpus[0].iommu = "DMA";
  CHECK(all_ok(of_check(peer_findings({}, host), "ACS")));
  CHECK(all_ok(of_check(peer_findings({}, host), "IOMMU")));
}

TEST_CASE("doctor settings: those that change an answer are told of, from variables and files") {
  HostFacts host = host_with_gpus(2);
  std::vector<RankFacts> ranks = ranks_with_gpus(2);
  for (RankFacts& rank : ranks) rank.variables = {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_DEBUG", "WARN"}};
  host.gpus.nccl_settings = {"NCCL_ALGO=Ring"};
  const Finding set = only(variable_findings(host, ranks), "NCCL settings");
  CHECK(set.verdict == Verdict::kWarning);
  CHECK_THAT(set.evidence,
             Contains("NCCL_P2P_DISABLE=1: ") && Contains("NCCL_ALGO=Ring in nccl.conf") && !Contains("NCCL_DEBUG"));
  ranks[0].variables["CUDA_LAUNCH_BLOCKING"] = "1";
  CHECK(only(variable_findings(host, ranks), "CUDA settings").verdict == Verdict::kProblem);
  ranks[0].variables["CUDA_LAUNCH_BLOCKING"] = "0";
  CHECK(of_check(variable_findings(host, ranks), "CUDA settings").empty());
}

}  // namespace
