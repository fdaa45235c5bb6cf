#include "launch/named_output.hpp"

#include <fmt/format.h>

#include "launch/output.hpp"

namespace shardscope::launch {

NamedOutput::NamedOutput(const std::string& name) : standard_output_(name == "-") {
  if (!name.empty() && !standard_output_) file_.emplace(name);
}

void NamedOutput::write(const std::string& text, const Session& session) {
  if (standard_output_) write_out(text);
  if (!file_) return;
  file_->finish(text);
  session.note(fmt::format("written: {}", file_->path()));
}

}  // namespace shardscope::launch
