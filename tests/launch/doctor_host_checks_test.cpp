// Checks of launch, host and MPI on made-up facts: each verdict of each.
#include <cerrno>

#include <catch2/catch.hpp>

#include "tests/launch/doctor_facts_made_up.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using namespace shardscope::test;
using Catch::Matchers::Contains;

namespace {

constexpr int64_t kMebi = int64_t{1} << 20;
constexpr const char* kMpi = "Open MPI v4.1.4";

Finding host_finding(const HostFacts& host, const std::vector<RankFacts>& ranks, const std::string& check) {
  const Findings findings = host_findings(host, ranks);
  check_manners(findings);
  return only(findings, check);
}

Finding mpi_finding(const HostFacts& host, const std::vector<RankFacts>& ranks, const std::string& check) {
  const Findings findings = mpi_findings(host, ranks, kMpi);
  check_manners(findings);
  return only(findings, check);
}

TEST_CASE("doctor: a sound host has nothing but ok") {
  const std::vector<RankFacts> ranks = sound_ranks(4);
  CHECK(all_ok(host_findings(sound_host(), ranks)));
  CHECK(all_ok(mpi_findings(sound_host(), ranks, kMpi)));
  CHECK(all_ok(launch_findings({.launcher = "mpirun", .announced_ranks = 4}, ranks)));
  CHECK(host_findings(sound_host(), ranks).size() >= 9);
}

TEST_CASE("doctor: a host of which nothing can be read throws nothing, and warns of nothing that it does not know") {
  const std::vector<RankFacts> ranks = sound_ranks(1);
  HostFacts unknown;
  unknown.shared_memory = sound_host().shared_memory;
  const Findings findings = host_findings(unknown, ranks);
  check_manners(findings);
  CHECK(only(findings, "memory").verdict == Verdict::kUnknown);
  for (const Finding& finding : findings) {
    CHECK((finding.verdict == Verdict::kOk || finding.verdict == Verdict::kUnknown));
  }
}

TEST_CASE("doctor launch: one rank alone cannot tell what is between ranks") {
  const Finding alone = only(launch_findings({.launcher = "none"}, sound_ranks(1)), "launch");
  CHECK(alone.verdict == Verdict::kUnknown);
  CHECK_THAT(alone.remedy, Contains("mpirun -np 2 "));
  const Finding gpus = only(launch_findings({.launcher = "none", .gpus = 8}, sound_ranks(1)), "launch");
  CHECK_THAT(gpus.evidence, Contains("8 GPUs"));
  CHECK_THAT(gpus.remedy, Contains("mpirun -np 8 "));
}

TEST_CASE("doctor launch: uneven hosts, and tasks that do not see each other") {
  std::vector<RankFacts> ranks = sound_ranks(3);
  ranks[2].host = "node2";
  const Finding uneven = only(launch_findings({.launcher = "mpirun"}, ranks), "launch");
  CHECK(uneven.verdict == Verdict::kWarning);
  CHECK_THAT(uneven.evidence, Contains("2 on node1, 1 on node2"));
  const Finding split = only(launch_findings({.launcher = "srun", .announced_ranks = 4}, ranks), "launch");
  CHECK(split.verdict == Verdict::kProblem);
  CHECK_THAT(split.evidence, Contains("announced 4"));
  const Finding lonely = only(launch_findings({.launcher = "srun", .announced_ranks = 4}, sound_ranks(1)), "launch");
  CHECK(lonely.verdict == Verdict::kProblem);
  CHECK_THAT(lonely.evidence, Contains("1 rank by srun on 1 host, but it announced 4"));
  CHECK_THAT(lonely.remedy, Contains("srun --mpi=pmix"));
  CHECK(only(launch_findings({.launcher = "mpirun", .announced_ranks = 1}, sound_ranks(1)), "launch").verdict ==
        Verdict::kUnknown);
}

TEST_CASE("doctor launch: ranks on one core are named, and equal cores of two hosts are not the same") {
  std::vector<RankFacts> ranks = sound_ranks(3);
  ranks[2].cores = {1};
  const Finding shared = only(launch_findings({.launcher = "mpirun"}, ranks), "core masks");
  CHECK(shared.verdict == Verdict::kWarning);
  CHECK_THAT(shared.evidence, Contains("ranks 1-2 share core 1 of node1"));
  ranks[1].launcher_cores = ranks[2].launcher_cores = {0};  // no more is to be had
  CHECK(only(launch_findings({.launcher = "mpirun"}, ranks), "core masks").verdict == Verdict::kOk);
  ranks = sound_ranks(3);
  ranks[2].cores = {1};
  ranks[2].host = "node2";
  CHECK(only(launch_findings({.launcher = "mpirun"}, ranks), "core masks").verdict == Verdict::kOk);
}

TEST_CASE("doctor launch: NCCL's variables have to be the same on all ranks") {
  std::vector<RankFacts> ranks = sound_ranks(3);
  ranks[1].variables["NCCL_ALGO"] = "Ring";
  const Finding differs = only(launch_findings({.launcher = "mpirun"}, ranks), "NCCL");
  CHECK(differs.verdict == Verdict::kProblem);
  CHECK_THAT(differs.evidence, Contains("not set (ranks 0,2), Ring (rank 1)"));
  for (RankFacts& rank : ranks) rank.variables["NCCL_ALGO"] = "Ring";
  CHECK(of_check(launch_findings({.launcher = "mpirun"}, ranks), "NCCL").empty());
}

TEST_CASE("doctor cores: more busy ranks than cores, with and without yielding") {
  HostFacts host = sound_host();
  host.cpu.allowed_cores = {0, 1};
  std::vector<RankFacts> ranks = sound_ranks(4);
  const Finding turns = host_finding(host, ranks, "cores");
  CHECK(turns.verdict == Verdict::kWarning);
  CHECK_THAT(turns.evidence, Contains("4 ranks of 1 thread on 2 usable cores"));
  ranks[0].variables["OMPI_MCA_mpi_yield_when_idle"] = "0";
  const Finding spins = host_finding(host, ranks, "cores");
  CHECK(spins.verdict == Verdict::kProblem);
  CHECK_THAT(spins.remedy, Contains("unset OMPI_MCA_mpi_yield_when_idle"));
  ranks[0].variables["OMPI_MCA_mpi_yield_when_idle"] = "1";
  CHECK(host_finding(host, ranks, "cores").verdict == Verdict::kWarning);
}

TEST_CASE("doctor CPU quota: less time than cores") {
  HostFacts host = sound_host();
  host.cpu.cpu_quota = 2.5;
  const Finding less = host_finding(host, sound_ranks(2), "CPU quota");
  CHECK(less.verdict == Verdict::kWarning);
  CHECK_THAT(less.evidence, Contains("2.5 cores for 16"));
  host.cpu.cpu_quota = 16;
  CHECK(host_finding(host, sound_ranks(2), "CPU quota").verdict == Verdict::kOk);
}

TEST_CASE("doctor memory: the control group's limit counts where it is less") {
  HostFacts host = sound_host();
  host.memory_limit_bytes = kGibi;
  const Finding small = host_finding(host, sound_ranks(2), "memory");
  CHECK(small.verdict == Verdict::kWarning);
  CHECK_THAT(small.evidence, Contains("allows 1 GiB"));
  host.memory_limit_bytes = 128 * kGibi;
  CHECK(host_finding(host, sound_ranks(2), "memory").verdict == Verdict::kOk);
  host.system.memory_available_bytes = kGibi;
  CHECK(host_finding(host, sound_ranks(2), "memory").verdict == Verdict::kWarning);
}

TEST_CASE("doctor /dev/shm: a container's 64 MiB, hardly any, and none") {
  HostFacts host = sound_host();
  host.shared_memory = HostFacts::Room{.bytes = 64 * kMebi, .free_bytes = 64 * kMebi};
  const Finding usual = host_finding(host, sound_ranks(2), "/dev/shm");
  CHECK(usual.verdict == Verdict::kWarning);
  CHECK_THAT(usual.remedy, Contains("--shm-size"));
  host.shared_memory->free_bytes = 6 * kMebi;
  CHECK(host_finding(host, sound_ranks(2), "/dev/shm").verdict == Verdict::kProblem);
  CHECK(host_finding(host, sound_ranks(1), "/dev/shm").verdict == Verdict::kWarning);
  host.shared_memory.reset();
  CHECK(host_finding(host, sound_ranks(2), "/dev/shm").verdict == Verdict::kProblem);
}

TEST_CASE("doctor locked memory: small limits, and any limit beside InfiniBand") {
  HostFacts host = sound_host();
  std::vector<RankFacts> ranks = sound_ranks(3);
  for (RankFacts& rank : ranks) rank.locked_bytes = 8 * kMebi;
  CHECK(host_finding(host, ranks, "locked memory").verdict == Verdict::kOk);
  ranks[1].locked_bytes = 64 * 1024;
  const Finding small = host_finding(host, ranks, "locked memory");
  CHECK(small.verdict == Verdict::kWarning);
  CHECK_THAT(small.evidence, Contains("8 MiB (ranks 0,2), 64 KiB (rank 1)"));
  for (RankFacts& rank : ranks) rank.locked_bytes = 8 * kMebi;
  host.infiniband = true;
  CHECK(host_finding(host, ranks, "locked memory").verdict == Verdict::kWarning);
  for (RankFacts& rank : ranks) rank.locked_bytes.reset();
  CHECK(host_finding(host, ranks, "locked memory").verdict == Verdict::kOk);
}

TEST_CASE("doctor: swap, huge pages, NUMA balancing, clock, stolen time and load, each when it matters") {
  HostFacts host = sound_host();
  host.swap_used_bytes = 3 * kGibi;
  host.system.transparent_hugepages = "never";
  host.system.numa_balancing = true;
  host.system.governor = "powersave";
  host.system.frequency_driver = "acpi-cpufreq";
  host.stolen_share = 0.05;
  host.system.load_average = 12;
  for (const char* check : {"swap", "huge pages", "NUMA balancing", "CPU clock", "stolen time", "load"}) {
    INFO(check);
    CHECK(host_finding(host, sound_ranks(2), check).verdict == Verdict::kWarning);
  }
  host.system.frequency_driver = "intel_pstate";
  CHECK(host_finding(host, sound_ranks(2), "CPU clock").verdict == Verdict::kOk);
  host.system.numa_nodes.resize(1);  // nothing to balance
  CHECK(of_check(host_findings(host, sound_ranks(2)), "NUMA balancing").empty());
}

TEST_CASE("doctor machine: a virtual one only matters between GPUs") {
  HostFacts host = sound_host();
  host.system.virtual_machine = true;
  host.system.container = "docker";
  const Finding alone = host_finding(host, sound_ranks(2), "machine");
  CHECK(alone.verdict == Verdict::kOk);
  CHECK_THAT(alone.evidence, Contains("docker"));
  host.gpus = host_with_gpus(2).gpus;
  CHECK(host_finding(host, sound_ranks(2), "machine").verdict == Verdict::kWarning);
}

TEST_CASE("doctor MPI: what keeps messages out of shared memory") {
  HostFacts host = sound_host();
  std::vector<RankFacts> ranks = sound_ranks(2);
  for (const char* value : {"tcp,self", "^vader,sm", "self"}) {
    for (RankFacts& rank : ranks) rank.variables["OMPI_MCA_btl"] = value;
    const Finding slow = mpi_finding(host, ranks, "MPI");
    INFO(value);
    CHECK(slow.verdict == Verdict::kWarning);
    CHECK_THAT(slow.evidence, Contains("OMPI_MCA_btl="));
  }
  for (const char* value : {"tcp,vader,self", "^openib", "sm,self"}) {
    for (RankFacts& rank : ranks) rank.variables["OMPI_MCA_btl"] = value;
    INFO(value);
    CHECK(mpi_finding(host, ranks, "MPI").verdict == Verdict::kOk);
  }
  for (RankFacts& rank : ranks) rank.variables = {{"OMPI_MCA_btl", "tcp,self"}, {"OMPI_MCA_pml", "ucx"}};
  CHECK(mpi_finding(host, ranks, "MPI").verdict == Verdict::kOk);  // no btl is asked then
  for (RankFacts& rank : ranks) rank.variables.clear();
  host.mpi_settings["btl"] = "tcp,self";
  CHECK_THAT(mpi_finding(host, ranks, "MPI").evidence, Contains("mca-params.conf"));
  CHECK(mpi_findings(host, ranks, "").empty());  // started without
}

TEST_CASE("doctor MPI: memory of another rank that may not be read") {
  HostFacts host = sound_host();
  host.ptrace_scope = 2;
  std::vector<RankFacts> ranks = sound_ranks(2);
  for (RankFacts& rank : ranks) rank.copy_errno = EPERM;
  ranks[0].seccomp = 2;
  const Finding refused = mpi_finding(host, ranks, "MPI single copy");
  CHECK(refused.verdict == Verdict::kWarning);
  CHECK_THAT(refused.evidence,
             Contains("Operation not permitted") && Contains("ptrace_scope is 2") && Contains("seccomp"));
  for (RankFacts& rank : ranks) rank.variables["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none";
  CHECK(mpi_finding(host, ranks, "MPI single copy").verdict == Verdict::kOk);
}

TEST_CASE("doctor: findings of several hosts, alike and not") {
  const Finding same{.check = "swap", .verdict = Verdict::kOk, .evidence = "none is used", .remedy = ""};
  Finding other = same;
  other.evidence = "1 GiB in use";
  const Findings all = merged({"a", "b", "c"}, {{same, other}, {same}, {same, other}});
  REQUIRE(all.size() == 2);
  CHECK(all[0] == same);
  CHECK(all[1].evidence == "a, c: 1 GiB in use");
  CHECK(merged({"a"}, {{same}}) == Findings{same});
}

TEST_CASE("doctor: words") {
  CHECK(ranks_text({3}) == "rank 3");
  CHECK(ranks_text({0, 1, 2, 5}) == "ranks 0-2,5");
  CHECK(memory_text(64 * 1024) == "64 KiB");
  CHECK(memory_text(kGibi + kGibi / 2) == "1.5 GiB");
  CHECK(memory_text(0) == "0 bytes");
  CHECK(count_text(1, "host") == "1 host");
  const std::vector<RankFacts> ranks = sound_ranks(3);
  CHECK(grouped(ranks, [](const RankFacts&) { return "x"; }) == "x");
  CHECK(grouped(ranks, [](const RankFacts& rank) { return rank.rank == 1 ? "" : "x"; }) == "x (ranks 0,2)");
  CHECK(grouped(ranks, [](const RankFacts&) { return ""; }).empty());
}

}  // namespace
