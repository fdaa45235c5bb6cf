// Tables of the parts of times, for a terminal of 100 columns: shared by what shows where TPOT, losses and differences
// go.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/measure/point.hpp"
#include "runtime/report/row_keys.hpp"

namespace shardscope::runtime {

/// As columns name it: "ideal", "matrices".
const char* short_name(Part part);

/// What the columns of parts mean, in lines.
std::string parts_legend();

/// What a table shows of a row.
struct PartsLine {
  const PointResult* point = nullptr;
  const Parts* parts = nullptr;
  std::vector<std::string> totals;  // one for each of the table's totals
  std::optional<double> whole_ms;   // of which shares are shown; nullopt: "n/a" stands for them
};

struct PartsTable {
  std::vector<KeyColumn> keys;
  std::vector<std::pair<std::string, std::string>> totals;  // name, unit; at least one
  bool shares = true;                                       // a line with the shares below each row
};

/// All parts side by side where they fit, else in as few tables as can be.
std::string parts_table_text(const PartsTable& table, const std::vector<PartsLine>& lines);

}  // namespace shardscope::runtime
