// Facts that `doctor` reads from files, on made-up trees, and those that ranks send each other.
#include <filesystem>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "launch/doctor_facts.hpp"
#include "tests/launch/doctor_facts_made_up.hpp"
#include "tests/topology/fake_root.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using test::FakeRoot;

namespace {

constexpr const char* kBus = "/sys/bus/pci/devices/";
constexpr size_t kWholeSpace = 4096;

/// A device at its place in the tree, and its link in the list.
void add_device(const FakeRoot& root, const std::string& place, const std::string& kind, const std::string& config) {
  const std::string folder = "/sys/devices/" + place;
  root.write(folder + "/vendor", "0x10de\n");
  root.write(folder + "/class", kind + "\n");
  root.write(folder + "/config", config);
  root.make_folder(kBus);
  const std::string id = std::filesystem::path(place).filename();
  std::filesystem::create_directory_symlink(root.path() + folder, root.path() + kBus + id);
}

/// A configuration space whose extended part lists capability 1 (errors), then ACS with that control register.
std::string config_with_acs(uint16_t control) {
  std::string bytes(kWholeSpace, '\0');
  const auto put = [&](size_t at, uint32_t value, int width) {
    for (int i = 0; i < width; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i));
  };
  put(0x100, 0x1U | 1U << 16U | 0x148U << 20U, 4);
  put(0x148, 0xdU | 1U << 16U, 4);
  put(0x148 + 6, control, 2);
  return bytes;
}

TEST_CASE("read_pci: GPUs, the bridges above them, their ACS, and who translates") {
  const FakeRoot root;
  const std::string bridge = "pci0000:16/0000:16:01.0";
  add_device(root, bridge, "0x060400", config_with_acs(0x001d));
  add_device(root, bridge + "/0000:17:00.0", "0x030200", "");
  add_device(root, "pci0000:16/0000:16:02.0", "0x060400", "");  // no GPU behind it
  root.write("/sys/devices/" + bridge + "/0000:17:00.0/iommu_group/type", "DMA-FQ\n");
  root.make_folder("/sys/bus/pci/drivers/vfio-pci");
  std::filesystem::create_directory_symlink(root.path() + "/sys/bus/pci/drivers/vfio-pci",
                                            root.path() + kBus + "0000:17:00.0/driver");
  root.make_folder("/sys/class/iommu/dmar0");
  root.write("/proc/cmdline", "quiet intel_iommu=on secret=1 iommu=nopt\n");

  const PciFacts facts = read_pci(root.path());
  CHECK(facts.known);
  REQUIRE(facts.gpus.size() == 1);
  CHECK(facts.gpus[0].bus_id == "0000:17:00.0");
  CHECK(facts.gpus[0].driver == "vfio-pci");
  CHECK(facts.gpus[0].iommu == "DMA-FQ");
  REQUIRE(facts.bridges.size() == 1);
  CHECK(facts.bridges[0].bus_id == "0000:16:01.0");
  CHECK(facts.bridges[0].readable);
  CHECK(facts.bridges[0].acs_control == 0x001d);
  CHECK(facts.iommus == 1);
  CHECK(facts.iommu_parameters == std::vector<std::string>{"intel_iommu=on", "iommu=nopt"});
}

TEST_CASE("read_pci: configuration spaces that are short, end, or lead in circles") {
  const std::string circle = [] {
    std::string bytes = config_with_acs(0x1d);
    bytes[0x148] = 0x1;  // no ACS
    bytes[0x14a] = 0x1;
    bytes[0x14b] = 0x10;  // and back to 0x100
    return bytes;
  }();
  const std::string outside = [] {
    std::string bytes(kWholeSpace, '\0');
    bytes[0x100] = 0x1;
    bytes[0x102] = static_cast<char>(0xf1);
    bytes[0x103] = static_cast<char>(0xff);
    return bytes;
  }();
  for (const auto& [config, readable] :
       {std::pair(std::string(64, '\0'), false), std::pair(std::string(256, '\0'), false),
        std::pair(std::string(), false), std::pair(circle, true), std::pair(outside, true),
        std::pair(std::string(kWholeSpace, '\xff'), true)}) {
    const FakeRoot root;
    add_device(root, "pci0000:16/0000:16:01.0", "0x060400", config);
    add_device(root, "pci0000:16/0000:16:01.0/0000:17:00.0", "0x030000", "");
    const PciFacts facts = read_pci(root.path());
    REQUIRE(facts.bridges.size() == 1);
    CHECK(facts.bridges[0].readable == readable);
    CHECK_FALSE(facts.bridges[0].acs_control.has_value());
  }
}

TEST_CASE("read_pci: without a bus nothing is known") {
  const FakeRoot root;
  const PciFacts facts = read_pci(root.path());
  CHECK_FALSE(facts.known);
  CHECK(facts.gpus.empty());
  CHECK_FALSE(facts.iommus.has_value());
}

TEST_CASE("stolen_share: of the busy time alone") {
  const FakeRoot root;
  CHECK_FALSE(stolen_share(root.path()).has_value());
  root.write("/proc/stat", "cpu  60 10 10 9000 50 5 5 10 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  CHECK(stolen_share(root.path()) == Approx(0.1));
  root.write("/proc/stat", "cpu  0 0 0 9000 50 0 0 0 0 0\n");
  CHECK_FALSE(stolen_share(root.path()).has_value());
  root.write("/proc/stat", "cpu  60 10 10 -1 50 x 5 10\n");
  CHECK_FALSE(stolen_share(root.path()).has_value());
}

TEST_CASE("swap_used_bytes: total less free") {
  const FakeRoot root;
  CHECK_FALSE(swap_used_bytes(root.path()).has_value());
  root.write("/proc/meminfo", "MemTotal: 100 kB\nSwapTotal:  2048 kB\nSwapFree:  1024 kB\n");
  CHECK(swap_used_bytes(root.path()) == 1024 * 1024);
  root.write("/proc/meminfo", "SwapTotal:  1024 kB\nSwapFree:  2048 kB\n");
  CHECK_FALSE(swap_used_bytes(root.path()).has_value());
}

TEST_CASE("mpi_settings: the user's file wins, comments are none") {
  const FakeRoot root;
  root.write("/etc/openmpi/openmpi-mca-params.conf", "# all\nbtl = ^openib # old\npml=ob1\n");
  root.write("/home/u/.openmpi/mca-params.conf", "btl = tcp,self\n");
  CHECK(mpi_settings("", root.path()) == Variables{{"btl", "^openib"}, {"pml", "ob1"}});
  CHECK(mpi_settings("/home/u", root.path()) == Variables{{"btl", "tcp,self"}, {"pml", "ob1"}});
}

TEST_CASE("device_files: NVIDIA's that are there") {
  const FakeRoot root;
  CHECK(device_files(root.path()).empty());
  for (const char* file : {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia10", "/dev/nvidia-modeset"})
    root.write(file, "");
  std::vector<std::string> paths;
  for (const DeviceFile& file : device_files(root.path())) {
    CHECK(file.usable);
    paths.push_back(file.path);
  }
  CHECK(paths == std::vector<std::string>{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia10"});
}

TEST_CASE("seccomp_mode: of this process's status") {
  const FakeRoot root;
  CHECK_FALSE(seccomp_mode(root.path()).has_value());
  root.write("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n");
  CHECK(seccomp_mode(root.path()) == 2);
}

TEST_CASE("read_host: this host, and an empty one") {
  const HostFacts own = read_host("here", "");
  CHECK(own.host == "here");
  CHECK(own.system.memory_bytes.value_or(0) > 0);
  const FakeRoot root;
  root.write("/etc/nccl.conf", "NCCL_ALGO = Ring\n");
  root.make_folder("/dev/shm");
  const HostFacts made = read_host("there", "/nobody", root.path());
  CHECK_FALSE(made.infiniband);
  CHECK(made.shared_memory.has_value());
  CHECK(made.gpus.nccl_settings == std::vector<std::string>{"NCCL_ALGO=Ring"});
  root.make_folder("/sys/class/infiniband/mlx5_0");
  root.write("/proc/sys/kernel/yama/ptrace_scope", "1\n");
  root.remove("/dev/shm");
  const HostFacts other = read_host("there", "", root.path());
  CHECK(other.infiniband);
  CHECK(other.ptrace_scope == 1);
  CHECK_FALSE(other.shared_memory.has_value());
}

TEST_CASE("RankFacts: through text and back") {
  RankFacts facts = test::ranks_with_gpus(2)[1];
  facts.locked_bytes = 65536;
  facts.copy_errno = 1;
  facts.variables["NCCL_ALGO"] = "Ring";
  facts.devices[0].refusal = "too old";
  CHECK(rank_facts_of(text_of(facts)) == facts);
  CHECK(rank_facts_of(text_of(RankFacts{})) == RankFacts{});
  CHECK_THROWS_AS(rank_facts_of("{}"), BugError);
  CHECK_THROWS_AS(rank_facts_of("nonsense"), BugError);
  facts.variables["NCCL_ALGO"] = "\xff";  // any bytes can stand in a variable
  CHECK_NOTHROW(rank_facts_of(text_of(facts)));
}

}  // namespace
