// What readers take at most, and names as they may be shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardscope::topology {

constexpr size_t kMostGpus = 64;             // of one machine: more is none that we know
constexpr int kLargestGpuIndex = 1023;       // that a label gives: topology_json takes none above it
constexpr size_t kMostNics = 256;            // a p5.48xlarge has 32
constexpr size_t kMostMeasurements = 65536;  // ten tests of all ordered pairs of 64 GPUs are 40320

/// A name out of a file: at most 64 characters; what is not printable ASCII becomes '?'.
inline std::string bounded_name(std::string_view text) {
  std::string name(text.substr(0, 64));
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';
  }
  return name;
}

}  // namespace shardscope::topology
