// The part of NVML that a probe needs, opened at run time: a machine without a driver has no library, and a build
// without CUDA's headers still finds the GPUs. Values are as NVML gives them; what a function refuses is nullopt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

class Nvml {
 public:
  /// Opens and initialises the library. nullptr, and `why_not` in words, where there is none or it does not start (no
  /// driver loaded, versions of driver and library that differ, no permission).
  static std::unique_ptr<Nvml> open(std::string& why_not, const std::string& library = "libnvidia-ml.so.1");
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  std::optional<std::string> driver_version() const;
  std::optional<int> cuda_version() const;  // 1000 * major + 10 * minor: the newest that the driver runs
  int gpu_count() const;

  /// All that NVML says of one GPU: names, place, ports, health. Position 0 to gpu_count() - 1, by PCI bus id.
  Gpu gpu(int position) const;
  /// What lies between two GPUs on PCIe.
  std::optional<PathKind> pcie_path(int a, int b) const;
  /// "OK", "CNS", "GNS", "TNS", "DR", "NS", "U", as `nvidia-smi topo -p2p` abbreviates; empty: not told.
  std::string p2p_read(int from, int to) const;
  std::string p2p_write(int from, int to) const;
  /// Whether peer access between two GPUs goes by NVLink.
  std::optional<bool> reached_by_nvlink(int from, int to) const;
  /// Why a GPU does not answer as it should ("GPU is lost"), with the question that it refused; empty: it does.
  std::string trouble(int position) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::optional<unsigned> peer_status(int from, int to, unsigned capability) const;
  std::unique_ptr<Library> library_;
};

}  // namespace shardscope::topology
