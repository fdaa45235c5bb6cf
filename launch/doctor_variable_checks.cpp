// Variables and files that change what NCCL and CUDA do. Source: NCCL's user guide, "Environment Variables"; CUDA
// Programming Guide, "CUDA Environment Variables".
#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"

namespace shardscope::launch {
namespace {

struct Meaning {
  std::string_view name;
  std::string_view text;
};

/// Those that change an answer: a figure measured with one is not a figure without it.
constexpr std::array kNcclMeanings = {
    Meaning{"NCCL_P2P_DISABLE", "GPUs do not write to each other"},
    Meaning{"NCCL_P2P_LEVEL", "how far GPUs write to each other"},
    Meaning{"NCCL_SHM_DISABLE", "no host memory between GPUs: what is left is the network"},
    Meaning{"NCCL_ALGO", "one algorithm for all sizes"},
    Meaning{"NCCL_PROTO", "one protocol for all sizes"},
    Meaning{"NCCL_MIN_NCHANNELS", "more channels than NCCL would take"},
    Meaning{"NCCL_MAX_NCHANNELS", "fewer channels than NCCL would take"},
    Meaning{"NCCL_MIN_CTAS", "more blocks than NCCL would take"},
    Meaning{"NCCL_MAX_CTAS", "fewer blocks than NCCL would take"},
    Meaning{"NCCL_NVLS_ENABLE", "sums inside the switches, or not"},
    Meaning{"NCCL_TOPO_FILE", "a topology from a file"},
    Meaning{"NCCL_GRAPH_FILE", "rings and trees from a file"},
    Meaning{"NCCL_IGNORE_CPU_AFFINITY", "its threads leave the ranks' cores"},
    Meaning{"NCCL_CUMEM_ENABLE", "how memory is allocated"},
    Meaning{"NCCL_TUNER_PLUGIN", "another choice of algorithms"},
    Meaning{"NCCL_CROSS_NIC", "how rings use network cards"},
};

std::string_view name_in(std::string_view setting) {
  return setting.substr(0, setting.find('='));
}

const Meaning* meaning_of(std::string_view name) {
  const auto* const found = std::find_if(kNcclMeanings.begin(), kNcclMeanings.end(),
                                         [&](const Meaning& meaning) { return meaning.name == name; });
  return found == kNcclMeanings.end() ? nullptr : &*found;
}

void check_nccl_settings(const HostFacts& host, Ranks ranks, Findings& out) {
  std::set<std::string> set;  // "NCCL_ALGO=Ring (one algorithm …)"
  std::vector<std::string> names;
  const auto add = [&](const std::string& setting, const char* where) {
    const Meaning* const meaning = meaning_of(name_in(setting));
    if (meaning == nullptr) return;
    set.insert(fmt::format("{}{}: {}", setting, where, meaning->text));
    names.emplace_back(meaning->name);
  };
  for (const RankFacts& rank : ranks) {
    for (const auto& [name, value] : rank.variables) add(fmt::format("{}={}", name, value), "");
  }
  for (const std::string& setting : host.gpus.nccl_settings) add(setting, " in nccl.conf");
  if (set.empty()) return;
  out.push_back({.check = "NCCL settings",
                 .verdict = Verdict::kWarning,
                 .evidence = fmt::format("{}", fmt::join(set, "; ")),
                 .remedy = "unset what is not meant: figures hold for these settings alone"});
}

void check_blocking(Ranks ranks, Findings& out) {
  const std::string value = variable_of(ranks, "CUDA_LAUNCH_BLOCKING");
  if (value.empty() || value == "0") return;
  out.push_back({.check = "CUDA settings",
                 .verdict = Verdict::kProblem,
                 .evidence = fmt::format("CUDA_LAUNCH_BLOCKING={}: the host waits for every kernel", value),
                 .remedy = "unset CUDA_LAUNCH_BLOCKING: it is for debugging"});
}

}  // namespace

Findings variable_findings(const HostFacts& host, Ranks ranks) {
  Findings out;
  if (!host.gpus.any()) return out;
  check_nccl_settings(host, ranks, out);
  check_blocking(ranks, out);
  return out;
}

}  // namespace shardscope::launch
