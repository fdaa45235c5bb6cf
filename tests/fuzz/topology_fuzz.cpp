// libFuzzer's entry to all readers of topologies: for any bytes, a topology that agrees with itself, or a UserError.
// Built and run by tests/fuzz/run.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/base/error.hpp"
#include "topology/read/reading.hpp"
#include "topology/topology_json.hpp"

namespace {

using namespace shardscope;
using topology::Topology;

/// Ends the process as a finding of the fuzzer's.
void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "topology_fuzz: %s\n", what);
  std::abort();
}

void check_shape(const Topology& found) {
  const size_t gpus = found.gpus.size();
  demand(!found.gpu_count || static_cast<size_t>(*found.gpu_count) == gpus, "gpu_count is not that of gpus");
  demand(gpus <= 64 && found.nics.size() <= 256, "more devices than a machine has");
  demand(found.nearest_nics.size() == gpus, "nearest_nics is not one a GPU");
  if (found.links) {
    demand(found.links->size() == gpus, "links is not one row a GPU");
    for (size_t i = 0; i < gpus; ++i) {
      demand((*found.links)[i].size() == gpus, "links is not square");
      demand((*found.links)[i][i] == topology::Path{}, "the diagonal of links is not X");
      for (size_t j = 0; j < gpus; ++j) demand((*found.links)[i][j] == (*found.links)[j][i], "links is not symmetric");
    }
  }
  if (found.nic_links) {
    demand(found.nic_links->size() == gpus, "nic_links is not one row a GPU");
    for (const auto& row : *found.nic_links) demand(row.size() == found.nics.size(), "nic_links is not one cell a NIC");
  }
  demand(found.complete || !found.warnings.empty(), "incomplete without a warning");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Topology found = topology::read_topology({.text = text, .file = "fuzz"});
    check_shape(found);
    const Topology again = topology::topology_of_json(topology_json(found), "fuzz");
    demand(again == found, "JSON gives another topology");
  } catch (const UserError& error) {
    demand(std::string_view(error.what()).find('\n') == std::string_view::npos, "a message of several lines");
  }
  return 0;
}
