#include "launch/topology_files.hpp"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/command_line.hpp"
#include "launch/prompts.hpp"
#include "topology/catalogue.hpp"
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

/// "aws-p4d or aws-p4de": machines of which a part of the name was written, or else the nearest name; empty: none is.
std::string machines_meant(const std::string& name) {
  constexpr size_t kLeast = 3;  // letters that tell something
  constexpr size_t kMost = 4;
  std::vector<std::string> parts, known;
  for (const topology::Machine& machine : topology::machines()) {
    known.insert(known.end(), {std::string(machine.name), std::string(machine.instance)});
    const bool part = name.size() >= kLeast && machine.name.find(name) != std::string_view::npos;
    if (part && parts.size() < kMost) parts.emplace_back(machine.name);
  }
  return parts.empty() ? nearest_name(name, known).value_or("") : fmt::format("{}", fmt::join(parts, " or "));
}

}  // namespace

topology::Topology read_topology_named(const std::string& name, Session& session) {
  const std::string text = read_text_file(name, [&] { session.world.progress("reading standard input"); });
  return topology::read_topology({.text = text, .file = name == "-" ? "standard input" : name});
}

topology::Topology topology_named(const std::string& name, Session& session, const char* option) {
  if (const topology::Machine* const machine = topology::find_machine(name)) return topology::topology_of(*machine);
  std::error_code ignored;
  if (name == "-" || name.find('/') != std::string::npos || std::filesystem::exists(name, ignored)) {
    return read_topology_named(name, session);
  }
  const std::string meant = machines_meant(name);
  throw UserError(fmt::format("'{}' is no machine that is known here, and no file", name), option,
                  fmt::format("{}`shardscope plan --list` shows the machines; a file is what `topo --file` reads",
                              meant.empty() ? "" : fmt::format("did you mean {}? ", meant)));
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
