// A report file that is never seen half-written: while the run goes on it stands as FILE.partial, replaced whole at
// each point; the final name is given when the run is complete. What an earlier run left in FILE.partial is its only
// record, so it is replaced only where the caller says so.
#pragma once

#include <optional>
#include <string>

namespace shardscope::runtime {

/// What becomes of a FILE.partial that is there already, and is not empty.
struct EarlierPartial {
  bool replaced = false;  // else it is refused
  std::string remedy;     // of the refusal; empty: to remove it
};

/// Where the points of the report `path` stand until its end. A symbolic link is followed.
std::string partial_path_of(const std::string& path);

class ReportFile {
 public:
  /// A report that is written at its end alone; a FILE.partial is left as it is. Checks at once that the report can be
  /// written. A symbolic link is followed; what is not a regular file (a pipe, a device) is written to as it is. Throws
  /// UserError.
  explicit ReportFile(std::string path);

  /// A report that grows: its points stand in FILE.partial until the end, except for what is not a regular file.
  /// Throws UserError, also for an earlier FILE.partial that is not to be replaced.
  ReportFile(std::string path, const EarlierPartial& earlier);

  /// Replaces FILE.partial. An interruption of any kind leaves the old or the new one.
  void write_partial(const std::string& text);
  /// Writes the report and takes FILE.partial away. Both throw SystemError when the disk does not take it.
  void finish(const std::string& text);
  const std::string& path() const { return path_; }
  /// Where the points stand until the end; nullopt where they do not.
  std::optional<std::string> partial_path() const;

 private:
  void replace(const std::string& name, const std::string& text) const;
  void write_to(const std::string& name, const std::string& text, bool synced) const;
  std::string path_;    // as the user named it
  std::string target_;  // links followed
  bool regular_ = true;
  bool grows_ = false;
};

}  // namespace shardscope::runtime
