// shardscope compare: two or more machines side by side, in the order of what matters to tensor parallelism.
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/config_file.hpp"
#include "launch/named_output.hpp"
#include "launch/output.hpp"
#include "launch/run_options.hpp"
#include "launch/session.hpp"
#include "launch/sweep_options.hpp"
#include "launch/topology_files.hpp"
#include "runtime/report/document.hpp"
#include "topology/comparing.hpp"

namespace shardscope::launch {
namespace {

constexpr const char* kCommand = "compare";
constexpr const char* kWhat =
    "compares two or more machines by their topologies (all that topo --file reads): what differs, in the order of "
    "its\n"
    "effect on tensor parallelism, and what that means.\n\nusage: shardscope compare FILE FILE [FILE…] [options]";
constexpr const char* kExample = "shardscope compare aws-p4.txt azure-nc-a100.txt";
constexpr size_t kMostFiles = 8;

po::options_description option_list() {
  po::options_description options("options");
  options.add_options()  //
      ("file", po::value<std::vector<std::string>>()->composing()->value_name("FILE"),
       "a machine; the same as a word without an option")  //
      ("json", po::value<std::string>()->value_name("FILE"), "write the document; - for standard output");
  add_run_options(options);
  return options;
}

/// Files' names without folder and ending, where these tell them apart.
std::vector<std::string> short_names(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const std::string& file : files) names.push_back(std::filesystem::path(file).stem().string());
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = i + 1; j < names.size(); ++j) {
      if (names[i] == names[j]) return files;
    }
  }
  return names;
}

runtime::Json comparison_json(const topology::Comparison& comparison, const std::vector<std::string>& files) {
  runtime::Json json = {{"schema", "shardscope.compare/1"}, {"files", files},
                        {"names", comparison.names},        {"differences", runtime::Json::array()},
                        {"points", runtime::Json::array()}, {"summary", comparison.summary}};
  for (const topology::Difference& difference : comparison.differences) {
    json["differences"].push_back(
        {{"what", difference.what}, {"values", difference.values}, {"effect", difference.effect}});
  }
  return json;
}

}  // namespace

int compare_command(Session& session, const std::vector<std::string>& words) {
  const po::options_description options = option_list();
  const Settings settings = command_settings(options, words, kCommand, session, "file");
  if (settings.values["help"].as<bool>()) {
    if (session.speaks()) write_out(help_text(kCommand, kWhat, options, kExample));
    return 0;
  }
  settings.with_origins([&] { return run_options(settings.values, session); });
  if (!session.speaks()) return 0;
  std::vector<std::string> files;
  if (settings.values.count("file") > 0) files = settings.values["file"].as<std::vector<std::string>>();
  if (files.size() < 2 || files.size() > kMostFiles) {
    throw UserError(fmt::format("{} file{} to compare", files.size(), files.size() == 1 ? "" : "s"),
                    "shardscope compare", fmt::format("name 2 to {}: shardscope compare A B", kMostFiles));
  }
  const std::string json = file_named(settings.values, "json");
  for (const std::string& file : files) check_not_read(file, "compare", {json});
  NamedOutput document(json);
  std::vector<topology::Topology> topologies;
  for (const std::string& file : files) topologies.push_back(read_topology_named(file, session));
  const topology::Comparison comparison = compare_topologies(topologies, short_names(files));
  const std::string text = topology::comparison_text(comparison, error_columns());
  if (document.on_standard_output()) {
    write_error(text);
  } else {
    write_out(text);
  }
  document.write(runtime::document_text(comparison_json(comparison, files)), session);
  return 0;
}

}  // namespace shardscope::launch
