// CPU quotas and memory limits from made-up /proc and cgroup trees.
#include "topology/cgroup.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace shardscope::topology {
namespace {

class Tree {
 public:
  Tree() {
    std::string name = (std::filesystem::temp_directory_path() / "shardscope_cgroup_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(root_); }
  std::optional<int64_t> memory() const { return cgroup_memory_limit(root_); }

 private:
  std::string root_;
};

constexpr const char* kV2Mount = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
constexpr const char* kV1Mount = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";

TEST_CASE("cgroup_cpu_quota: version 2, the tightest limit up to the root") {
  Tree tree;
  tree.write("/proc/self/mountinfo", std::string("25 1 8:1 / / rw - ext4 /dev/sda rw\n") + kV2Mount);
  tree.write("/proc/self/cgroup", "0::/a/b/c\n");
  CHECK_FALSE(tree.quota());
  tree.write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  CHECK_FALSE(tree.quota());
  tree.write("/sys/fs/cgroup/a/b/cpu.max", "350000 100000\n");
  CHECK(tree.quota() == 3.5);
  tree.write("/sys/fs/cgroup/a/b/c/cpu.max", "800000 100000\n");
  CHECK(tree.quota() == 3.5);
  tree.write("/sys/fs/cgroup/a/cpu.max", "50000 50000\n");
  CHECK(tree.quota() == 1.0);
}

TEST_CASE("cgroup_cpu_quota: version 2 in a container, whose own group is the mount's root") {
  Tree tree;
  tree.write("/proc/self/mountinfo", kV2Mount);
  tree.write("/proc/self/cgroup", "0::/\n");
  tree.write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(tree.quota() == 2.0);
  tree.write("/proc/self/cgroup", "0::/../../elsewhere\n");
  CHECK(tree.quota() == 2.0);
}

TEST_CASE("cgroup_cpu_quota: version 1, quota and period in two files") {
  Tree tree;
  tree.write("/proc/self/mountinfo", kV1Mount);
  tree.write("/proc/self/cgroup", "4:memory:/m\n3:cpu,cpuacct:/docker/x\n2:cpuset:/s\n");
  tree.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  tree.write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(tree.quota());
  tree.write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "150000\n");
  tree.write("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  CHECK(tree.quota() == 1.5);
}

TEST_CASE("cgroup_cpu_quota: version 1 with the host's path seen from a container") {
  Tree tree;
  tree.write("/proc/self/mountinfo", "32 31 0:29 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  tree.write("/proc/self/cgroup", "3:cpu:/docker/x/inner\n");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(tree.quota() == 4.0);
  tree.write("/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "100000\n");
  tree.write("/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
  CHECK(tree.quota() == 1.0);
  tree.write("/proc/self/cgroup", "3:cpu:/docker/y\n");  // outside of what is mounted
  CHECK(tree.quota() == 4.0);
}

TEST_CASE("cgroup_cpu_quota: the cpuset controller is not the cpu controller") {
  Tree tree;
  tree.write("/proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  tree.write("/sys/fs/cgroup/cpuset/cpu.cfs_quota_us", "100000\n");
  tree.write("/sys/fs/cgroup/cpuset/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(tree.quota());
}

TEST_CASE("cgroup_cpu_quota: nothing to read is no limit") {
  CHECK_FALSE(Tree().quota());
  Tree tree;
  tree.write("/proc/self/mountinfo", std::string(kV2Mount) + "garbage\n");
  tree.write("/proc/self/cgroup", "garbage");
  tree.write("/sys/fs/cgroup/cpu.max", "0 0");
  CHECK_FALSE(tree.quota());
}

TEST_CASE("cgroup_memory_limit: the tightest of version 2, version 1's huge number is none") {
  Tree tree;
  tree.write("/proc/self/mountinfo", kV2Mount);
  tree.write("/proc/self/cgroup", "0::/a/b\n");
  CHECK_FALSE(tree.memory());
  tree.write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  CHECK_FALSE(tree.memory());
  tree.write("/sys/fs/cgroup/a/memory.max", "8589934592\n");
  tree.write("/sys/fs/cgroup/a/b/memory.max", "17179869184\n");
  CHECK(tree.memory() == 8589934592);
  Tree old;
  old.write("/proc/self/mountinfo", "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  old.write("/proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/other\n");
  old.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_FALSE(old.memory());
  old.write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  CHECK(old.memory() == 1073741824);
}

}  // namespace
}  // namespace shardscope::topology
