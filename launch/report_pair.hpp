// The files of a run's report: JSON, CSV and a page, each where it was asked for.
#pragma once

#include <optional>
#include <string>

#include "runtime/report/report_file.hpp"

namespace shardscope::launch {

struct ReportPair {
  std::optional<runtime::ReportFile> json, csv, html{};

  /// The files get their names. Throws what the first threw that does not, after all were tried.
  void finish(const std::string& json_text, const std::string& csv_text, const std::string& html_text = {});
};

}  // namespace shardscope::launch
