// How Open MPI's messages travel between ranks of one host: Open MPI 4 and 5, by variables and files of its settings,
// and by trying. Sources: Open MPI's FAQ, sections "sm" and "vader"; Linux process_vm_readv(2), ptrace(2).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include <fmt/format.h>

#include "launch/doctor_checks.hpp"

namespace shardscope::launch {
namespace {

/// What a framework of Open MPI is set to, and by what; empty: nothing.
struct MpiSetting {
  std::string value;
  std::string text;  // "OMPI_MCA_btl=self,tcp"
  std::string where;
};

MpiSetting setting_of(const HostFacts& host, Ranks ranks, const std::string& name) {
  const std::string variable = "OMPI_MCA_" + name;
  if (const std::string value = variable_of(ranks, variable); !value.empty()) {
    return {.value = value, .text = fmt::format("{}={}", variable, value), .where = variable};
  }
  const auto found = host.mpi_settings.find(name);
  if (found == host.mpi_settings.end()) return {};
  const std::string where = fmt::format("{} in mca-params.conf", name);
  return {.value = found->second, .text = fmt::format("{}: {}", where, found->second), .where = where};
}

/// Whether a list of components, "tcp,self" or "^openib", has one of `names`.
bool offers(const std::string& list, std::initializer_list<std::string_view> names) {
  const bool excludes = list.starts_with('^');
  std::istringstream parts(excludes ? list.substr(1) : list);
  bool named = false;
  for (std::string part; std::getline(parts, part, ',');) {
    named = named || std::find(names.begin(), names.end(), part) != names.end();
  }
  return excludes ? !named : named;
}

void check_transport(const HostFacts& host, Ranks ranks, const std::string& mpi, Findings& out) {
  const MpiSetting btl = setting_of(host, ranks, "btl");
  const MpiSetting pml = setting_of(host, ranks, "pml");
  // Open MPI 4 calls messages through shared memory "vader", 5 calls them "sm". With another pml no btl is asked.
  const bool asked = pml.value.empty() || offers(pml.value, {"ob1"});
  const bool shared = btl.value.empty() || offers(btl.value, {"vader", "sm"});
  if (asked && !shared) {
    out.push_back({.check = "MPI",
                   .verdict = Verdict::kWarning,
                   .evidence = fmt::format(
                       "{}; {}: messages between ranks of this host do not go through shared memory", mpi, btl.text),
                   .remedy = fmt::format("take {} away, or add vader (Open MPI 4) or sm (5) to it", btl.where)});
    return;
  }
  std::string evidence = mpi;
  for (const MpiSetting& setting : {pml, btl}) {
    if (!setting.text.empty()) evidence += "; " + setting.text;
  }
  out.push_back({.check = "MPI", .verdict = Verdict::kOk, .evidence = evidence, .remedy = ""});
}

/// One copy instead of two for large messages: a rank reads another's memory, which Yama, seccomp and namespaces of
/// users can forbid.
void check_single_copy(const HostFacts& host, Ranks ranks, Findings& out) {
  const bool tried =
      std::any_of(ranks.begin(), ranks.end(), [](const RankFacts& r) { return r.copy_errno.has_value(); });
  if (!tried || ranks.size() < 2) return;
  const std::string failures = grouped(ranks, [](const RankFacts& rank) {
    return rank.copy_errno.value_or(0) == 0 ? "" : fmt::format("{}", std::strerror(*rank.copy_errno));
  });
  if (failures.empty()) {
    out.push_back({.check = "MPI single copy",
                   .verdict = Verdict::kOk,
                   .evidence = "ranks may read each other's memory (process_vm_readv)",
                   .remedy = ""});
    return;
  }
  const std::string mechanism = setting_of(host, ranks, "btl_vader_single_copy_mechanism").value;
  if (mechanism == "none") {
    out.push_back({.check = "MPI single copy",
                   .verdict = Verdict::kOk,
                   .evidence = "switched off, as it has to be here (process_vm_readv: " + failures + ")",
                   .remedy = ""});
    return;
  }
  std::string why;
  if (host.ptrace_scope.value_or(0) > 0) why = fmt::format(", yama's ptrace_scope is {}", *host.ptrace_scope);
  const bool filtered = std::any_of(ranks.begin(), ranks.end(), [](const RankFacts& r) { return r.seccomp == 2; });
  if (filtered) why += ", a seccomp filter is active";
  out.push_back({.check = "MPI single copy",
                 .verdict = Verdict::kWarning,
                 .evidence = fmt::format("ranks may not read each other's memory (process_vm_readv: {}{}): messages "
                                         "above 4 KiB are slower, or fail with \"Read -1\"",
                                         failures, why),
                 .remedy = "export OMPI_MCA_btl_vader_single_copy_mechanism=none, or allow it: docker "
                           "--cap-add=SYS_PTRACE, sysctl kernel.yama.ptrace_scope=0"});
}

}  // namespace

Findings mpi_findings(const HostFacts& host, Ranks ranks, const std::string& mpi) {
  Findings out;
  if (mpi.empty()) return out;
  check_transport(host, ranks, mpi, out);
  check_single_copy(host, ranks, out);
  return out;
}

}  // namespace shardscope::launch
