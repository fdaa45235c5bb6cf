// A report file that is never seen half-written: while the run goes on it stands as FILE.partial, replaced whole at
// each point; the final name is given when the run is complete.
#pragma once

#include <string>

namespace shardscope::runtime {

class ReportFile {
 public:
  /// Writes nothing but checks at once that FILE.partial can be created. Throws UserError.
  explicit ReportFile(std::string path);

  void write_partial(const std::string& text);
  void finish(const std::string& text);
  const std::string& path() const { return path_; }

 private:
  void replace(const std::string& target, const std::string& text) const;
  std::string path_;
};

}  // namespace shardscope::runtime
