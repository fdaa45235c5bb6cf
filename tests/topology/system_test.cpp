// Facts of made-up hosts: a server of two sockets, a cloud's virtual machine, an ARM board, and nothing.
#include "topology/system.hpp"

#include <catch2/catch.hpp>

#include "tests/topology/fake_root.hpp"

namespace shardscope::topology {
namespace {

using test::FakeRoot;
using Words = std::vector<std::string>;

constexpr const char* kCpu = "/sys/devices/system/cpu/";

SystemFacts probe(const FakeRoot& root) {
  return probe_system(root.path());
}

void write_bare_metal_server(const FakeRoot& root) {
  root.write("/proc/sys/kernel/ostype", "Linux\n");
  root.write("/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  root.write("/etc/os-release", "NAME=\"Ubuntu\"\nPRETTY_NAME=\"Ubuntu 22.04.4 LTS\"\nVERSION_ID=\"22.04\"\n");
  root.write("/sys/class/dmi/id/sys_vendor", "Supermicro\n");
  root.write("/sys/class/dmi/id/product_name", "SYS-620U-TNR\n");
  root.write("/proc/cpuinfo",
             "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\nphysical id\t: 0\n"
             "flags\t\t: fpu vme smep sme svm sse4_2 avx fma f16c avx2 bmi2 avx512f avx512_vnni amx_int8 amx_tile\nvmx "
             "flags\t: vnmi\n\n"
             "processor\t: 1\nphysical id\t: 1\nflags\t\t: fpu hypervisor\n");
  for (int core = 0; core < 4; ++core) {
    const std::string own = kCpu + ("cpu" + std::to_string(core));
    root.write(own + "/topology/physical_package_id", core < 2 ? "0\n" : "1\n");
    root.write(own + "/cpufreq/scaling_governor", core == 0 ? "performance\n" : "powersave\n");
    root.write(own + "/cpufreq/scaling_driver", "intel_pstate\n");
    root.write(own + "/cpufreq/scaling_min_freq", "800000\n");
    root.write(own + "/cpufreq/scaling_max_freq", "3800000\n");
  }
  root.write(kCpu + std::string("intel_pstate/no_turbo"), "0\n");
  root.write(kCpu + std::string("smt/active"), "1\n");
  root.write("/proc/loadavg", "1.25 0.80 0.41 2/812 40312\n");
  root.write("/proc/meminfo",
             "MemTotal:       528280856 kB\nMemFree:        100 kB\nMemAvailable:   510000000 kB\n"
             "SwapCached:            0 kB\nSwapTotal:             0 kB\n");
  root.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.write("/proc/sys/kernel/numa_balancing", "1\n");
  root.write("/sys/devices/system/node/node0/cpulist", "0-1\n");
  root.write("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:       264000000 kB\nNode 0 MemFree: 1 kB\n");
  root.write("/sys/devices/system/node/node1/cpulist", "2-3\n");
  root.write("/sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       264280856 kB\n");
  root.write("/sys/devices/system/node/online", "0-1\n");
}

TEST_CASE("probe_system: a server of two sockets on bare metal") {
  const FakeRoot root;
  write_bare_metal_server(root);
  const SystemFacts facts = probe(root);
  CHECK(facts.kernel == "Linux 6.1.0-18-amd64");
  CHECK(facts.distribution == "Ubuntu 22.04.4 LTS");
  CHECK(facts.machine == "Supermicro SYS-620U-TNR");
  CHECK(facts.virtual_machine == false);
  CHECK(facts.container.empty());
  CHECK(facts.cpu_flags ==
        Words{"amx_int8", "amx_tile", "avx", "avx2", "avx512_vnni", "avx512f", "bmi2", "f16c", "fma", "sse4_2"});
  CHECK(facts.sockets == 2);
  CHECK(facts.smt_active == true);
  CHECK(facts.governor == "performance");
  CHECK(facts.frequency_driver == "intel_pstate");
  CHECK(facts.lowest_mhz == 800.0);
  CHECK(facts.highest_mhz == 3800.0);
  CHECK(facts.turbo == true);
  CHECK(facts.load_average == 1.25);
  CHECK(facts.memory_bytes == 540959596544);  // 528280856 x 1024
  CHECK(facts.memory_available_bytes == 522240000000);
  CHECK(facts.swap_bytes == 0);
  CHECK(facts.transparent_hugepages == "madvise");
  CHECK(facts.numa_balancing == true);
  REQUIRE(facts.numa_nodes.size() == 2);
  CHECK(facts.numa_nodes[0].cores == std::vector<int>{0, 1});
  CHECK(facts.numa_nodes[0].memory_bytes == 270336000000);
  CHECK(facts.numa_nodes[1].id == 1);
  CHECK(facts.numa_nodes[1].cores == std::vector<int>{2, 3});
}

TEST_CASE("probe_system: turbo by the driver's inverted switch, by the common one, or by policy") {
  const FakeRoot root;
  CHECK_FALSE(probe(root).turbo);
  root.write(kCpu + std::string("cpu0/cpufreq/boost"), "1\n");
  CHECK(probe(root).turbo == true);
  root.write(kCpu + std::string("cpufreq/boost"), "0\n");
  CHECK(probe(root).turbo == false);
  root.write(kCpu + std::string("cpufreq/boost"), "1\n");
  CHECK(probe(root).turbo == true);
  root.write(kCpu + std::string("intel_pstate/no_turbo"), "1\n");
  CHECK(probe(root).turbo == false);
}

TEST_CASE("probe_system: a cloud's virtual machine, without a governor") {
  const FakeRoot root;
  root.write("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
  root.write("/sys/class/dmi/id/product_name", "p4d.24xlarge\n");
  root.write("/proc/cpuinfo",
             "physical id\t: 0\nflags\t\t: fpu hypervisor avx2 fma\n\nphysical id\t: 1\nflags\t: fpu\n");
  root.write("/proc/sys/kernel/numa_balancing", "0\n");
  root.write(kCpu + std::string("smt/active"), "0\n");
  const SystemFacts facts = probe(root);
  CHECK(facts.machine == "Amazon EC2 p4d.24xlarge");
  CHECK(facts.virtual_machine == true);
  CHECK(facts.cpu_flags == Words{"avx2", "fma"});
  CHECK(facts.sockets == 2);  // by cpuinfo: sysfs is hidden
  CHECK(facts.smt_active == false);
  CHECK(facts.governor.empty());
  CHECK(facts.frequency_driver.empty());
  CHECK_FALSE(facts.lowest_mhz);
  CHECK_FALSE(facts.highest_mhz);
  CHECK_FALSE(facts.turbo);
  CHECK(facts.numa_balancing == false);
}

TEST_CASE("probe_system: the machine's name without repetition and without a maker's blanks") {
  const FakeRoot root;
  root.write("/sys/class/dmi/id/sys_vendor", "Google\n");
  CHECK(probe(root).machine == "Google");
  root.write("/sys/class/dmi/id/product_name", "Google Compute Engine\n");
  CHECK(probe(root).machine == "Google Compute Engine");
  root.write("/sys/class/dmi/id/sys_vendor", "To Be Filled By O.E.M.\n");
  root.write("/sys/class/dmi/id/product_name", "X570 Taichi \n");
  CHECK(probe(root).machine == "X570 Taichi");
  root.write("/sys/class/dmi/id/product_name", "System Product Name\n");
  CHECK(probe(root).machine.empty());
}

TEST_CASE("probe_system: an ARM machine has Features, and no flag that tells of a hypervisor") {
  const FakeRoot root;
  root.write("/proc/cpuinfo",
             "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes asimdhp asimddp sve i8mm bf16\n"
             "CPU implementer\t: 0x41\n");
  root.write("/proc/device-tree/model", std::string("Raspberry Pi 5 Model B Rev 1.0") + '\0');
  root.write(kCpu + std::string("cpu0/topology/physical_package_id"), "-1\n");
  root.write(kCpu + std::string("cpu4/cpufreq/scaling_governor"), "schedutil\n");
  root.make_folder(kCpu + std::string("cpufreq"));
  const SystemFacts facts = probe(root);
  CHECK(facts.cpu_flags == Words{"asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve"});
  CHECK_FALSE(facts.virtual_machine);
  CHECK(facts.machine == "Raspberry Pi 5 Model B Rev 1.0");
  CHECK_FALSE(facts.sockets);
  CHECK(facts.governor == "schedutil");  // of the first core that has one
}

TEST_CASE("probe_system: nothing to read is nothing known") {
  const FakeRoot root;
  const SystemFacts facts = probe(root);
  for (const std::string* text : {&facts.kernel, &facts.distribution, &facts.machine, &facts.container, &facts.governor,
                                  &facts.frequency_driver, &facts.transparent_hugepages}) {
    CHECK(text->empty());
  }
  for (const std::optional<bool>& fact : {facts.virtual_machine, facts.smt_active, facts.turbo, facts.numa_balancing}) {
    CHECK_FALSE(fact.has_value());
  }
  for (const auto& fact : {facts.memory_bytes, facts.memory_available_bytes, facts.swap_bytes}) CHECK_FALSE(fact);
  for (const auto& fact : {facts.lowest_mhz, facts.highest_mhz, facts.load_average}) CHECK_FALSE(fact);
  CHECK(facts.cpu_flags.empty());
  CHECK_FALSE(facts.sockets);
  CHECK(facts.numa_nodes.empty());
}

TEST_CASE("probe_system: malformed files are nothing known, and the rest stays") {
  const FakeRoot root;
  write_bare_metal_server(root);
  root.write("/proc/cpuinfo", "flags\nphysical id : many\n\xff\xfe");
  root.write("/proc/meminfo", "MemTotal:\nMemAvailable: -5 kB\nSwapTotal: 99999999999999999999 kB\n");
  root.write("/proc/loadavg", "busy\n");
  root.write("/proc/sys/kernel/numa_balancing", "yes\n");
  root.write("/etc/os-release", "PRETTY_NAME\n");
  root.write("/usr/lib/os-release", "PRETTY_NAME='Alpine \"edge\"'\n");
  root.write("/sys/kernel/mm/transparent_hugepage/enabled", "]always[\n");
  root.write("/sys/devices/system/node/node0/cpulist", "0-\n");
  root.write("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 5 pages\n");
  root.make_folder("/sys/devices/system/node/node1x");
  root.write(kCpu + std::string("smt/active"), "");
  root.write(kCpu + std::string("intel_pstate/no_turbo"), "maybe\n");
  root.write(kCpu + std::string("cpu0/cpufreq/scaling_min_freq"), "slow\n");
  root.write(kCpu + std::string("cpu0/cpufreq/scaling_max_freq"), "0\n");
  root.remove("/proc/sys/kernel/osrelease");
  root.make_folder("/proc/sys/kernel/osrelease");
  const SystemFacts facts = probe(root);
  CHECK(facts.kernel == "Linux");
  CHECK(facts.distribution == "Alpine \"edge\"");
  CHECK(facts.cpu_flags.empty());
  CHECK_FALSE(facts.virtual_machine);
  CHECK(facts.sockets == 2);  // of sysfs
  CHECK_FALSE(facts.memory_bytes);
  CHECK_FALSE(facts.memory_available_bytes);
  CHECK_FALSE(facts.swap_bytes);
  CHECK_FALSE(facts.load_average);
  CHECK_FALSE(facts.numa_balancing);
  CHECK(facts.transparent_hugepages.empty());
  CHECK_FALSE(facts.smt_active);
  CHECK_FALSE(facts.turbo);
  CHECK_FALSE(facts.lowest_mhz);
  CHECK_FALSE(facts.highest_mhz);
  CHECK(facts.governor == "performance");
  REQUIRE(facts.numa_nodes.size() == 2);
  CHECK(facts.numa_nodes[0].cores.empty());
  CHECK_FALSE(facts.numa_nodes[0].memory_bytes);
}

TEST_CASE("probe_system: NUMA nodes by number, lists of cores with gaps, a node of memory alone") {
  const FakeRoot root;
  root.write("/sys/devices/system/node/node10/cpulist", "\n");
  root.write("/sys/devices/system/node/node10/meminfo", "Node 10 MemTotal: 1024 kB\n");
  root.write("/sys/devices/system/node/node2/cpulist", "8-10,3,40\n");
  for (const char* unbelievable : {"0-4000000000", "3-1", "1,,2", "1,", "a", "0-2:1"}) {
    root.write("/sys/devices/system/node/node3/cpulist", unbelievable);
    const std::vector<NumaNode> nodes = probe(root).numa_nodes;
    REQUIRE(nodes.size() == 3);
    CHECK(nodes[0].id == 2);
    CHECK(nodes[0].cores == std::vector<int>{3, 8, 9, 10, 40});
    CHECK_FALSE(nodes[0].memory_bytes);
    CHECK(nodes[1].cores.empty());
    CHECK(nodes[2].id == 10);
    CHECK(nodes[2].cores.empty());
    CHECK(nodes[2].memory_bytes == 1024 * 1024);
  }
}

TEST_CASE("probe_system: distribution with escaped quotes, from either file") {
  const FakeRoot root;
  root.write("/usr/lib/os-release", "PRETTY_NAME=\"Say \\\"Linux\\\" \\$1\"\n");
  CHECK(probe(root).distribution == "Say \"Linux\" $1");
  root.write("/etc/os-release", "#PRETTY_NAME=no\nPRETTY_NAME=Void\n");
  CHECK(probe(root).distribution == "Void");
}

TEST_CASE("probe_system: this host has a kernel and memory") {
  const SystemFacts facts = probe_system();
  CHECK(facts.kernel.starts_with("Linux "));
  CHECK(facts.memory_bytes.value_or(0) > 0);
}

}  // namespace
}  // namespace shardscope::topology
