// What copies between the devices of one process take: through host memory, by peer access, and by all devices at once.
// Values, plain C++, for callers that see no CUDA.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/device_facts.hpp"

namespace shardscope::parallel {

struct PeerCopiesWanted {
  int64_t bytes = int64_t{64} << 20;                   // of a copy whose rate is taken
  int copies = 8;                                      // enqueued one behind the other
  std::function<void(const std::string& doing)> tell;  // before each kind of measurement
  std::function<void()> look;                          // while copies are waited for; may throw
};

/// Copies from one device to another, one behind the other.
struct PeerCopyFigure {
  int from = 0, to = 0;  // positions in PeerCopies::devices
  bool peer_access = false;
  bool both_ways = false;  // the other direction at the same time
  bool together = false;   // all devices sent, each to the one so many further, at the same time
  int64_t bytes = 0;       // of a copy
  double us = 0;           // mean of a copy
  bool right = true;       // what arrived is what was sent
};

struct PeerCopies {
  std::vector<cuda::DeviceFacts> devices;  // those that can be used
  std::vector<std::vector<bool>> can;      // [from][to]: the driver offers peer access
  std::vector<PeerCopyFigure> figures;
};

}  // namespace shardscope::parallel
