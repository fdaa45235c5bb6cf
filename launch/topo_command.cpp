// shardscope topo: how the GPUs of this node, or of a file, are joined, and what that means for tensor parallelism.
#include <string>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/config_file.hpp"
#include "launch/named_output.hpp"
#include "launch/output.hpp"
#include "launch/run_options.hpp"
#include "launch/session.hpp"
#include "launch/sweep_options.hpp"
#include "launch/topo_measure.hpp"
#include "launch/topology_files.hpp"
#include "runtime/report/document.hpp"
#include "topology/drawing.hpp"
#include "topology/probe.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::launch {
namespace {

constexpr const char* kCommand = "topo";
constexpr const char* kWhat =
    "shows how the GPUs of this node are joined, or those of a file that another tool wrote: the matrix, its class, "
    "the\n"
    "best and worst group of each tensor-parallel degree, NUMA nodes, NICs, and what is wrong.";
constexpr const char* kExample = "nvidia-smi topo -m | shardscope topo --file - --svg topology.svg";

po::options_description option_list() {
  po::options_description options("options");
  options.add_options()  //
      ("file", po::value<std::string>()->value_name("FILE"),
       "read this instead of looking at this node; - for standard input. Known by content: nvidia-smi topo -m, topo "
       "-p2p, nvlink -s; XML of NCCL and hwloc; tables of p2pBandwidthLatencyTest, p2pmark, nvbandwidth, nccl-tests; "
       "JSON of this program")  //
      ("measure", po::bool_switch(),
       "copies between this node's GPUs: bandwidth and latency of every pair, through the host and by peer access, and "
       "of "
       "all at once; checks that what was sent has arrived")                                               //
      ("json", po::value<std::string>()->value_name("FILE"), "write the document; - for standard output")  //
      ("svg", po::value<std::string>()->value_name("FILE"), "write the drawing; - for standard output");
  add_run_options(options);
  return options;
}

}  // namespace

int topo_command(Session& session, const std::vector<std::string>& words) {
  const po::options_description options = option_list();
  const Settings settings = command_settings(options, words, kCommand, session);
  if (settings.values["help"].as<bool>()) {
    if (session.speaks()) write_out(help_text(kCommand, kWhat, options, kExample));
    return 0;
  }
  settings.with_origins([&] { return run_options(settings.values, session); });
  if (!session.speaks()) return 0;
  const std::string file = file_named(settings.values, "file");
  const std::string json = file_named(settings.values, "json");
  const std::string svg = file_named(settings.values, "svg");
  const bool measured = settings.values["measure"].as<bool>();
  if (measured && !file.empty()) {
    throw UserError("a file cannot be measured", "--measure", "leave out --file or --measure");
  }
  check_two_outputs(json, "--json", svg, "--svg");
  check_not_read(file, "--file", {json, svg});
  NamedOutput document(json);
  NamedOutput drawing(svg);
  topology::Topology topology = file.empty() ? topology::probe_topology() : read_topology_named(file, session);
  if (measured) measure_topology(topology, session);
  const std::string text = topology::topology_text(topology, error_columns());
  if (document.on_standard_output() || drawing.on_standard_output()) {
    write_error(text);
  } else {
    write_out(text);
  }
  document.write(runtime::document_text(topology::topology_json(topology)), session);
  drawing.write(topology::topology_svg(topology), session);
  return 0;
}

}  // namespace shardscope::launch
