// Reports of `bench` and `scale` as `compare` reads them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/report/document.hpp"
#include "topology/topology.hpp"

namespace shardscope::runtime {

struct ReadReport {
  std::string file;  // for messages
  std::string name;  // for tables
  Json document;
  std::vector<PointResult> points;
  std::optional<topology::Topology> topology;  // of the machine; nullopt: the report holds none
  double noise_bound = 0;                      // of the protocol: half the interval that TPOT was to be known to
};

/// Whether a text is a report, whole or cut, by its schema.
bool is_report(std::string_view text);

/// Throws UserError, which names the file and the place: no JSON, another schema or version, a run that is not
/// complete, or a field that is missing or at odds with the others.
ReadReport read_report(std::string_view text, const std::string& file, const std::string& name);

/// What must agree for two reports to be compared (comparable.hpp) and does not: "model.layers: 4, 32", for each other
/// report than the first. Empty: all are comparable.
std::vector<std::string> incomparable_facts(const std::vector<ReadReport>& reports);

}  // namespace shardscope::runtime
