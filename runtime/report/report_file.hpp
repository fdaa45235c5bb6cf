// A report file that is never seen half-written: while the run goes on it stands as FILE.partial, replaced whole at
// each point; the final name is given when the run is complete.
#pragma once

#include <optional>
#include <string>

namespace shardscope::runtime {

class ReportFile {
 public:
  /// Checks at once that the report can be written. A symbolic link is followed; what is not a regular file (a pipe, a
  /// device) is written to at the end, without a partial file. Throws UserError.
  explicit ReportFile(std::string path);

  void write_partial(const std::string& text);
  /// Both throw SystemError when the disk does not take it.
  void finish(const std::string& text);
  const std::string& path() const { return path_; }
  /// Where the points stand until the end; nullopt for what is not a regular file.
  std::optional<std::string> partial_path() const;

 private:
  void replace(const std::string& name, const std::string& text) const;
  void write_to(const std::string& name, const std::string& text) const;
  std::string path_;    // as the user named it
  std::string target_;  // links followed
  bool regular_ = true;
};

}  // namespace shardscope::runtime
