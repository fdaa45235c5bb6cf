#include "launch/topology_files.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/prompts.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::launch {
namespace {

bool is_file(const std::string& name) {
  return !name.empty() && name != "-";
}

bool same_file(const std::string& one, const std::string& other) {
  std::error_code ignored;
  return is_file(one) && is_file(other) &&
         (one == other || std::filesystem::equivalent(one, other, ignored) ||
          std::filesystem::weakly_canonical(one, ignored) == std::filesystem::weakly_canonical(other, ignored));
}

}  // namespace

topology::Topology read_topology_named(const std::string& name, Session& session) {
  const std::string text = read_text_file(name, [&] { session.world.progress("reading standard input"); });
  return topology::read_topology({.text = text, .file = name == "-" ? "standard input" : name});
}

void check_two_outputs(const std::string& one, const char* option, const std::string& other, const char* other_option) {
  if (one == "-" && other == "-") {
    throw UserError("two documents for standard output", fmt::format("{} -, {} -", option, other_option),
                    "name a file for one of them");
  }
  if (same_file(one, other)) {
    throw UserError(fmt::format("{} and {} would overwrite each other ({})", option, other_option, one), "command line",
                    "name two files");
  }
}

void check_not_read(const std::string& input, const char* option, const std::vector<std::string>& outputs) {
  for (const std::string& output : outputs) {
    if (!same_file(input, output)) continue;
    throw UserError(fmt::format("what is written would overwrite what {} reads", option), output, "name another file");
  }
}

}  // namespace shardscope::launch
