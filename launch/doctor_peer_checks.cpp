// Peer access: what the driver claims against what was proved, and what stands between two GPUs on PCIe.
// ACS bits: PCI Express Base Specification 7.7.11.3 (control register).
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"

namespace shardscope::launch {
namespace {

using topology::Topology;

constexpr int kRedirects = 0x4 | 0x8 | 0x10;  // of requests, of completions, upstream forwarding

struct Claims {
  int pairs = 0, offered = 0;
  std::set<std::string> refusals;  // "NS", …
};

Claims claims_of(const Topology& topology) {
  Claims claims;
  if (!topology.p2p) return claims;
  for (size_t i = 0; i < topology.p2p->size(); ++i) {
    for (size_t j = 0; j < topology.p2p->size(); ++j) {
      const std::string& word = (*topology.p2p)[i][j];
      if (i == j || word.empty()) continue;
      ++claims.pairs;
      if (word == "OK") {
        ++claims.offered;
      } else {
        claims.refusals.insert(word);
      }
    }
  }
  return claims;
}

std::string claim_text(const Claims& claims) {
  if (claims.pairs == 0) return "the driver does not say what it offers";
  if (claims.offered == claims.pairs) return fmt::format("the driver offers it between all GPUs");
  return fmt::format("the driver offers it in {} of {} directions ({} in the others)", claims.offered, claims.pairs,
                     fmt::join(claims.refusals, ", "));
}

/// Words of a way's own failure up to what it says is to be done, and that, as far as it can be told apart: errors join
/// what, where and what to do by commas, and advice begins with what is to be done.
std::pair<std::string, std::string> split_advice(const std::string& failure) {
  constexpr std::string_view kMark = ", what to do: ";
  if (const size_t at = failure.find(kMark); at != std::string::npos) {
    return {failure.substr(0, at), failure.substr(at + kMark.size())};
  }
  size_t first = std::string::npos;
  for (const char* verb : {"set", "raise", "name", "leave", "give", "see", "use", "update", "look"}) {
    first = std::min(first, failure.find(fmt::format(", {} ", verb)));
  }
  if (first == std::string::npos) return {failure, ""};
  return {failure.substr(0, first), failure.substr(first + std::string_view(", ").size())};
}

void check_peers(const PeerProof& proof, const HostFacts& host, Findings& out) {
  const Claims claims = claims_of(host.gpus.topology);
  const std::string claimed = claim_text(claims);
  if (!proof.tried) {
    if (host.gpus.topology.gpus.size() < 2 || !host.gpus.nvml) return;
    const bool none = claims.pairs > 0 && claims.offered == 0;
    out.push_back({.check = "peer access",
                   .verdict = none ? Verdict::kWarning : Verdict::kUnknown,
                   .evidence = none ? claimed + ": what GPUs send each other goes through host memory"
                                    : fmt::format("{}; not proved: {}", claimed, proof.why_not_tried),
                   .remedy = none ? "a driver and GPUs with peer access (GeForce has none), or expect less of TP"
                                  : fmt::format("mpirun -np {} shardscope doctor", host.gpus.topology.gpus.size())});
    return;
  }
  if (proof.failure.empty()) {
    out.push_back({.check = "peer access",
                   .verdict = Verdict::kOk,
                   .evidence = fmt::format("proved between all {} ranks' GPUs by writing and reading back; {}",
                                           proof.ranks, claimed),
                   .remedy = ""});
    return;
  }
  const auto [evidence, remedy] = split_advice(proof.failure);
  // Not offered, it is slow; offered and not kept, it hangs or corrupts programs that believe it.
  const bool refused =
      claims.pairs > 0 && claims.offered < claims.pairs && (evidence.find("no peer access") != std::string::npos);
  out.push_back(
      {.check = "peer access",
       .verdict = refused ? Verdict::kWarning : Verdict::kProblem,
       .evidence = fmt::format("{}; {}{}", evidence, claimed,
                               refused && proof.ranks > 2 ? ", and nothing is proved between the others" : ""),
       .remedy = refused && proof.ranks > 2
                     ? "CUDA_VISIBLE_DEVICES=A,B mpirun -np 2 shardscope doctor proves a pair; " + remedy
                 : remedy.empty() ? "NCCL_P2P_DISABLE=1 until it works"
                                  : remedy});
}

void check_nccl(const PeerProof& proof, Findings& out) {
  if (!proof.nccl_tried && proof.nccl_version.empty()) return;
  const std::string version = proof.nccl_version.empty() ? "" : proof.nccl_version + ", ";
  if (!proof.nccl_tried) {
    out.push_back({.check = "NCCL",
                   .verdict = Verdict::kUnknown,
                   .evidence = fmt::format("{}not tried: {}", version, proof.why_not_tried),
                   .remedy = ""});
    return;
  }
  const auto [evidence, remedy] = split_advice(proof.nccl_failure);
  out.push_back({.check = "NCCL",
                 .verdict = evidence.empty() ? Verdict::kOk : Verdict::kProblem,
                 .evidence = evidence.empty() ? fmt::format("{}its sums over {} ranks are right", version, proof.ranks)
                                              : version + evidence,
                 .remedy = evidence.empty() ? ""
                           : remedy.empty() ? "NCCL_DEBUG=INFO says more; --allreduce one-shot does without NCCL"
                                            : remedy});
}

bool all_by_nvlink(const Topology& topology) {
  if (!topology.links) return false;
  for (size_t i = 0; i < topology.links->size(); ++i) {
    for (size_t j = 0; j < topology.links->size(); ++j) {
      const std::optional<topology::Path>& path = (*topology.links)[i][j];
      if (i != j && (!path || path->kind != topology::PathKind::kNvLink)) return false;
    }
  }
  return true;
}

std::string bus_ids(const std::vector<std::string>& ids) {
  constexpr size_t kNamed = 4;
  const std::vector<std::string> first(ids.begin(), ids.begin() + static_cast<long>(std::min(ids.size(), kNamed)));
  return fmt::format("{}{}", fmt::join(first, ", "), ids.size() > kNamed ? ", …" : "");
}

/// ACS makes bridges send what a GPU writes to another one up to the root, where an IOMMU may translate, or lose it.
void check_acs(const HostFacts& host, Findings& out) {
  const PciFacts& pci = host.gpus.pci;
  if (pci.gpus.size() < 2) return;
  std::vector<std::string> redirecting;
  bool unreadable = false;
  std::string controls;
  for (const PciBridge& bridge : pci.bridges) {
    unreadable = unreadable || !bridge.readable;
    if (!bridge.acs_control || (*bridge.acs_control & kRedirects) == 0) continue;
    if (redirecting.empty()) controls = fmt::format("0x{:04x}", *bridge.acs_control);
    redirecting.push_back(bridge.bus_id);
  }
  const bool linked = all_by_nvlink(host.gpus.topology);
  const std::string unimportant = linked ? "; between these GPUs NVLinks carry the data" : "";
  if (!redirecting.empty()) {
    out.push_back({.check = "ACS",
                   .verdict = linked ? Verdict::kOk : Verdict::kWarning,
                   .evidence = fmt::format("{} above GPUs redirect peers' requests to the root (ACSCtl {}: {}){}",
                                           count_text(static_cast<int64_t>(redirecting.size()), "bridge"), controls,
                                           bus_ids(redirecting), unimportant),
                   .remedy = linked ? ""
                                    : fmt::format("as root: setpci -s {} ECAP_ACS+6.w=0000 for each, or ACS off in the "
                                                  "BIOS (not where virtual machines share this host)",
                                                  redirecting.front())});
  } else if (unreadable) {
    out.push_back({.check = "ACS",
                   .verdict = linked ? Verdict::kOk : Verdict::kUnknown,
                   .evidence = "the bridges' configuration is root's alone" + unimportant,
                   .remedy = linked ? "" : "run as root: sudo shardscope doctor, or lspci -vvv (ACSCtl)"});
  } else if (pci.bridges.empty()) {
    out.push_back({.check = "ACS",
                   .verdict = Verdict::kUnknown,
                   .evidence = "no bridge is seen above the GPUs, as in virtual machines: the host decides",
                   .remedy = ""});
  } else {
    out.push_back({.check = "ACS",
                   .verdict = Verdict::kOk,
                   .evidence = fmt::format("no redirection by the {} above the GPUs",
                                           count_text(static_cast<int64_t>(pci.bridges.size()), "bridge")),
                   .remedy = ""});
  }
}

void check_iommu(const HostFacts& host, Findings& out) {
  const PciFacts& pci = host.gpus.pci;
  if (pci.gpus.size() < 2) return;
  std::vector<std::string> translated;
  bool told = false;
  for (const PciGpu& gpu : pci.gpus) {
    told = told || !gpu.iommu.empty();
    if (gpu.iommu.starts_with("DMA")) translated.push_back(gpu.bus_id);
  }
  const std::string parameters =
      pci.iommu_parameters.empty() ? "" : fmt::format(" (kernel: {})", fmt::join(pci.iommu_parameters, " "));
  const bool linked = all_by_nvlink(host.gpus.topology);
  if (!translated.empty()) {
    out.push_back({.check = "IOMMU",
                   .verdict = linked ? Verdict::kOk : Verdict::kWarning,
                   .evidence = fmt::format("translates the addresses of {}{}: peer access over PCIe has been seen to "
                                           "hang and to lose data",
                                           bus_ids(translated), parameters),
                   .remedy = linked ? "" : "kernel parameter iommu=pt (or the IOMMU off in the BIOS), and reboot"});
  } else if (told) {
    out.push_back({.check = "IOMMU",
                   .verdict = Verdict::kOk,
                   .evidence = "leaves the GPUs' addresses as they are" + parameters,
                   .remedy = ""});
  } else if (pci.iommus.value_or(0) == 0) {
    out.push_back({.check = "IOMMU", .verdict = Verdict::kOk, .evidence = "none in use" + parameters, .remedy = ""});
  } else {
    out.push_back(
        {.check = "IOMMU",
         .verdict = Verdict::kUnknown,
         .evidence = fmt::format("{} in use{}; whether it translates for GPUs is not told", *pci.iommus, parameters),
         .remedy = "dmesg | grep -i iommu says which domain type is the default"});
  }
}

}  // namespace

Findings peer_findings(const PeerProof& proof, const HostFacts& host) {
  Findings out;
  check_peers(proof, host, out);
  check_nccl(proof, out);
  check_acs(host, out);
  check_iommu(host, out);
  return out;
}

}  // namespace shardscope::launch
