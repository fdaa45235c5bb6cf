// PCI devices in a made-up /sys: a tree of folders as the kernel makes it, with its symbolic links.
#pragma once

#include <filesystem>
#include <string>

#include "tests/topology/fake_root.hpp"

namespace shardscope::test {

struct FakeDevice {
  std::string device_class = "0x060400";  // a PCI bridge
  std::string vendor = "0x1000";
  int numa_node = -1;
  std::string cpus = "0-7";
  std::string speed = "16.0 GT/s PCIe", width = "16";
  std::string best_speed = "16.0 GT/s PCIe", best_width = "16";
};

class FakePci {
 public:
  explicit FakePci(const FakeRoot& root) : root_(root) { root_.make_folder("/sys/bus/pci/devices"); }

  /// `path`: "pci0000:16/0000:16:01.0/0000:17:00.0"; its last part is the device.
  void add(const std::string& path, const FakeDevice& device = {}) const {
    const std::string folder = "/sys/devices/" + path;
    root_.write(folder + "/class", device.device_class + "\n");
    root_.write(folder + "/vendor", device.vendor + "\n");
    root_.write(folder + "/numa_node", std::to_string(device.numa_node) + "\n");
    root_.write(folder + "/local_cpulist", device.cpus + "\n");
    root_.write(folder + "/current_link_speed", device.speed + "\n");
    root_.write(folder + "/current_link_width", device.width + "\n");
    root_.write(folder + "/max_link_speed", device.best_speed + "\n");
    root_.write(folder + "/max_link_width", device.best_width + "\n");
    link("/sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1), "../../../devices/" + path);
  }
  void add_gpu(const std::string& path, int numa_node = -1, const std::string& device_class = "0x030200") const {
    add(path, {.device_class = device_class, .vendor = "0x10de", .numa_node = numa_node});
  }
  /// `kind` "infiniband" or "net": its name, and the class's link to it.
  void add_network(const std::string& path, const std::string& kind, const std::string& name,
                   const std::string& inner = "") const {
    const std::string place = "/sys/devices/" + path + inner;
    root_.make_folder(place + "/" + kind + "/" + name);
    link(place + "/" + kind + "/" + name + "/device", "../..");
    root_.make_folder("/sys/class/" + kind);
    link("/sys/class/" + kind + "/" + name, "../../devices/" + path + inner + "/" + kind + "/" + name);
  }
  void add_nic(const std::string& path, const std::string& name, int numa_node = -1) const {
    add(path, {.device_class = "0x020700", .vendor = "0x15b3", .numa_node = numa_node});
    add_network(path, "infiniband", name);
  }
  void link(const std::string& from, const std::string& to) const {
    std::filesystem::create_directories(std::filesystem::path(root_.path() + from).parent_path());
    std::filesystem::create_symlink(to, root_.path() + from);
  }

 private:
  const FakeRoot& root_;
};

}  // namespace shardscope::test
