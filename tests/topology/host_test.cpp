// This host's probe, and the dealing of cores on made-up hosts.
#include "topology/host.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "kernels/base/error.hpp"

namespace shardscope::topology {
namespace {

HostCpu host_of(int cores) {
  HostCpu host;
  host.allowed_cores.resize(cores);
  std::iota(host.allowed_cores.begin(), host.allowed_cores.end(), 0);
  return host;
}

TEST_CASE("probe_host: finds cores, memory and a NUMA node, and changes nothing") {
  const HostCpu host = probe_host();
  CHECK_FALSE(host.allowed_cores.empty());
  CHECK_FALSE(host.launcher_cores.empty());
  CHECK(std::is_sorted(host.allowed_cores.begin(), host.allowed_cores.end()));
  CHECK(host.memory_bytes > 0);
  CHECK(host.numa_nodes >= 1);
  CHECK(host.usable_cores() >= 1);
  CHECK(probe_host().launcher_cores == host.launcher_cores);
}

TEST_CASE("bind_process: a narrow mask from the launcher does not narrow the allowed cores") {
  const HostCpu before = probe_host();
  bind_process({before.allowed_cores.front()});
  const HostCpu narrow = probe_host();
  bind_process(before.launcher_cores);
  CHECK(narrow.launcher_cores == std::vector<int>{before.allowed_cores.front()});
  CHECK(narrow.allowed_cores == before.allowed_cores);
  CHECK(probe_host().launcher_cores == before.launcher_cores);
}

TEST_CASE("bind_process: a core that does not exist is a system error") {
  CHECK_THROWS_AS(bind_process({60'000}), SystemError);
  CHECK_THROWS_AS(bind_process({}), BugError);
}

TEST_CASE("HostCpu::usable_cores: the quota limits, rounded down, to one at least") {
  HostCpu host = host_of(8);
  CHECK(host.usable_cores() == 8);
  host.cpu_quota = 3.9;
  CHECK(host.usable_cores() == 3);
  host.cpu_quota = 0.5;
  CHECK(host.usable_cores() == 1);
  host.cpu_quota = 100.0;
  CHECK(host.usable_cores() == 8);
  CHECK(HostCpu().usable_cores() == 1);
}

TEST_CASE("cores_for_rank: disjoint and contiguous where cores suffice") {
  for (int cores = 1; cores <= 17; ++cores) {
    for (int ranks = 1; ranks <= cores; ++ranks) {
      for (int threads = 1; threads * ranks <= cores; ++threads) {
        std::set<int> seen;
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<int> own = cores_for_rank(host_of(cores), rank, ranks, threads);
          REQUIRE(own.size() == static_cast<size_t>(threads));
          CHECK(own.back() - own.front() == threads - 1);
          seen.insert(own.begin(), own.end());
        }
        CHECK(seen.size() == static_cast<size_t>(threads * ranks));
      }
    }
  }
}

TEST_CASE("cores_for_rank: shared round robin where they do not") {
  const HostCpu host = host_of(2);
  CHECK(cores_for_rank(host, 0, 4, 1) == std::vector<int>{0});
  CHECK(cores_for_rank(host, 1, 4, 1) == std::vector<int>{1});
  CHECK(cores_for_rank(host, 2, 4, 1) == std::vector<int>{0});
  CHECK(cores_for_rank(host, 1, 2, 2) == std::vector<int>{0, 1});
  CHECK(cores_for_rank(host, 0, 1, 3) == std::vector<int>{0, 1, 0});
}

TEST_CASE("cores_for_rank: second hardware threads only where whole cores do not suffice") {
  HostCpu host = host_of(4);
  host.second_threads = {1, 3};
  CHECK(cores_for_rank(host, 0, 2, 1) == std::vector<int>{0});
  CHECK(cores_for_rank(host, 1, 2, 1) == std::vector<int>{2});
  CHECK(cores_for_rank(host, 1, 2, 2) == std::vector<int>{2, 3});
}

TEST_CASE("cache_bytes_of: each cache that any of the cores shares counts once") {
  const HostCpu host{.allowed_cores = {0, 1, 2, 3}, .last_level_caches = {{100, {0, 1}}, {200, {2, 3}}}};
  CHECK(cache_bytes_of(host, {0}) == 100);
  CHECK(cache_bytes_of(host, {1, 0, 1}) == 100);
  CHECK(cache_bytes_of(host, {1, 2}) == 300);
  CHECK(cache_bytes_of(HostCpu{}, {0}) == 0);
}

TEST_CASE("core_list_text: runs as ranges") {
  CHECK(core_list_text({}).empty());
  CHECK(core_list_text({8, 0, 1, 2, 3}) == "0-3,8");
  CHECK(core_list_text({5}) == "5");
  CHECK(core_list_text({4, 4, 6, 7}) == "4,6-7");
}

}  // namespace
}  // namespace shardscope::topology
