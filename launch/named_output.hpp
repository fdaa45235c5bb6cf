// A document that the user named: a file, written once at the end, or standard output.
#pragma once

#include <optional>
#include <string>

#include "launch/session.hpp"
#include "runtime/report/report_file.hpp"

namespace shardscope::launch {

class NamedOutput {
 public:
  /// name: a file, "-" for standard output, or empty: nothing is written. Checks at once that the file can be written.
  /// Throws UserError.
  explicit NamedOutput(const std::string& name);

  bool on_standard_output() const { return standard_output_; }

  /// Throws SystemError.
  void write(const std::string& text, const Session& session);

 private:
  bool standard_output_;
  std::optional<runtime::ReportFile> file_;
};

}  // namespace shardscope::launch
