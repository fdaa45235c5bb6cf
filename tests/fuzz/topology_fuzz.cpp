// libFuzzer's entry to all readers of topologies: for any bytes, a topology that agrees with itself, that its own JSON
// gives again, and that can be drawn and compared; or a UserError.
// Built and run by tests/fuzz/run.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/base/error.hpp"
#include "topology/comparing.hpp"
#include "topology/drawing.hpp"
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

/// Through text, as a file of `topo --json` is read: names that are no UTF-8 end in an exception here.
void check_json(Topology found) {
  found.source = topology::SourceKind::kShardscope;
  try {
    const std::string text = topology_json(found).dump();
    const Topology again = topology::topology_of_json(nlohmann::json::parse(text), found.file);
    demand(again == found, "JSON gives another topology");
  } catch (const UserError& error) {
    demand(false, error.what());
  }
}

void check_words(const Topology& found) {
  demand(topology::topology_text(found).ends_with('\n'), "a text without a last newline");
  demand(topology::topology_svg(found).ends_with("</svg>\n"), "a picture without an end");
  const topology::Comparison same = topology::compare_topologies({found, found}, {"a", "b"});
  demand(!topology::comparison_text(same).empty(), "a comparison without words");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Topology found;
  try {
    found = topology::read_topology({.text = text, .file = "fuzz"});
  } catch (const UserError& error) {
    demand(std::string_view(error.what()).find('\n') == std::string_view::npos, "a message of several lines");
    return 0;
  }
  check_shape(found);
  check_json(found);
  check_words(found);
  return 0;
}
