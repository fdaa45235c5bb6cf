// What is known of the CUDA devices of a host. Values, plain C++, for callers that see no CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shardscope::cuda {

/// A visible device. What the driver does not tell is "" or 0.
struct DeviceFacts {
  int ordinal = 0;  // among those visible to this process
  std::string name;
  std::string uuid;        // "GPU-…"; of a MIG instance its own
  std::string pci_bus_id;  // "0000:1b:00.0": the same for all MIG instances of a GPU
  int compute_major = 0;
  int compute_minor = 0;
  int64_t memory_bytes = 0;  // all of it
  int multiprocessors = 0;
  int64_t l2_bytes = 0;
  int clock_khz = 0;  // of multiprocessors, at most
  int memory_clock_khz = 0;
  int memory_bus_bits = 0;
  std::string refusal;  // why it cannot be used; "" if it can
};

struct DeviceProbe {
  int driver_version = 0;  // CUDA's of the driver, 1000 * major + 10 * minor; 0: no driver
  int runtime_version = 0;
  std::vector<DeviceFacts> devices;  // all that are visible, those that cannot be used too
  std::string why_none;              // one line, if none can be used

  bool usable() const { return why_none.empty(); }
};

struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

}  // namespace shardscope::cuda
