// The environment of a report: every key whatever is known, null for what is not.
#include <set>

#include <catch2/catch.hpp>

#include "runtime/report/document.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

const std::set<std::string> kFacts = {"time",
                                      "version",
                                      "commit",
                                      "compiler",
                                      "build_type",
                                      "mpi",
                                      "launcher",
                                      "host",
                                      "machine",
                                      "virtual_machine",
                                      "container",
                                      "kernel",
                                      "distribution",
                                      "load_average",
                                      "cpu",
                                      "cpu_flags",
                                      "sockets",
                                      "smt_active",
                                      "allowed_cores",
                                      "cpu_quota_cores",
                                      "last_level_cache_bytes",
                                      "governor",
                                      "frequency_driver",
                                      "lowest_mhz",
                                      "highest_mhz",
                                      "turbo",
                                      "memory_bytes",
                                      "peak_gb_per_s",
                                      "peak_tflops",
                                      "memory_limit_bytes",
                                      "memory_available_bytes",
                                      "swap_bytes",
                                      "transparent_hugepages",
                                      "numa_balancing",
                                      "numa_nodes",
                                      "cuda",
                                      "nccl",
                                      "backend",
                                      "threads_per_rank"};
const std::set<std::string> kLists = {"devices", "ranks", "variables", "libraries"};

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

Environment full() {
  Environment e{.time = "2025-01-31T23:59:07Z",
                .host = "node7",
                .cpu = "Intel Xeon",
                .allowed_cores = 8,
                .cpu_quota_cores = 2.5,
                .last_level_cache_bytes = 1000,
                .memory_limit_bytes = 7000,
                .backend = "cpu: AVX2",
                .threads_per_rank = 4,
                .oversubscribed = true,
                .peak_gb_per_s = 204.5,
                .peak_tflops = 1.25,
                .mpi = "Open MPI",
                .build = {.version = "0.1.0",
                          .commit = "abc",
                          .compiler = "g++ 12",
                          .build_type = "Release",
                          .libraries = {{"fmt", "9.1.0"}, {"boost", "1.74.0"}}},
                .launcher = "mpirun",
                .ranks = {{.rank = 1, .host = "node8", .launcher_cores = {0, 1}, .cores = {1}}},
                .variables = {{"NCCL_DEBUG", "INFO"}}};
  e.system = {.kernel = "Linux 6.1.0",
              .distribution = "Debian",
              .machine = "Amazon EC2 p4d.24xlarge",
              .virtual_machine = true,
              .container = "docker",
              .cpu_flags = {"avx2", "fma"},
              .sockets = 2,
              .smt_active = false,
              .governor = "performance",
              .frequency_driver = "intel_pstate",
              .lowest_mhz = 800,
              .highest_mhz = 3800,
              .turbo = false,
              .load_average = 0.0,
              .memory_bytes = 9000,
              .memory_available_bytes = 8000,
              .swap_bytes = 0,
              .transparent_hugepages = "madvise",
              .numa_balancing = true,
              .numa_nodes = {{.id = 0, .cores = {0, 1}, .memory_bytes = 4500}, {.id = 2, .cores = {}}}};
  return e;
}

}  // namespace

TEST_CASE("environment_json: nothing known is null under every key, and no list is null") {
  const Json document = environment_json({});
  for (const std::string& key : kFacts) {
    INFO(key);
    REQUIRE(document.contains(key));
    CHECK(document[key].is_null());
  }
  CHECK(document["devices"] == Json::array());
  CHECK(document["ranks"] == Json::array());
  CHECK(document["variables"] == Json::object());
  CHECK(document["libraries"] == Json::object());
  CHECK(document["oversubscribed"] == false);
  CHECK(document.size() == kFacts.size() + kLists.size() + 1);
}

TEST_CASE("environment_json: the same keys when everything is known") {
  CHECK(keys_of(environment_json(full())) == keys_of(environment_json({})));
}

TEST_CASE("environment_json: each value under its key, known zeros and falses as such") {
  const Json document = environment_json(full());
  CHECK(document == Json::parse(R"({
    "time": "2025-01-31T23:59:07Z", "version": "0.1.0", "commit": "abc", "compiler": "g++ 12", "build_type": "Release",
    "libraries": {"boost": "1.74.0", "fmt": "9.1.0"}, "mpi": "Open MPI", "launcher": "mpirun", "host": "node7",
    "machine": "Amazon EC2 p4d.24xlarge", "virtual_machine": true, "container": "docker", "kernel": "Linux 6.1.0",
    "distribution": "Debian", "load_average": 0.0, "cpu": "Intel Xeon", "cpu_flags": ["avx2", "fma"], "sockets": 2,
    "smt_active": false, "allowed_cores": 8, "cpu_quota_cores": 2.5, "last_level_cache_bytes": 1000,
    "governor": "performance", "frequency_driver": "intel_pstate", "lowest_mhz": 800.0, "highest_mhz": 3800.0,
    "turbo": false, "memory_bytes": 9000, "memory_limit_bytes": 7000, "memory_available_bytes": 8000, "swap_bytes": 0,
    "transparent_hugepages": "madvise", "numa_balancing": true,
    "numa_nodes": [{"id": 0, "cores": [0, 1], "memory_bytes": 4500}, {"id": 2, "cores": [], "memory_bytes": null}],
    "devices": [], "cuda": null, "nccl": null, "backend": "cpu: AVX2", "threads_per_rank": 4, "oversubscribed": true,
    "peak_gb_per_s": 204.5, "peak_tflops": 1.25,
    "ranks": [{"rank": 1, "host": "node8", "device": "cpu", "launcher_cores": [0, 1], "cores": [1]}],
    "variables": {"NCCL_DEBUG": "INFO"}})"));
}
