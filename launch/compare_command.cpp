// shardscope compare: two or more reports or machines side by side. Reports are recognised by their schema; anything
// else is read as a topology.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/config_file.hpp"
#include "launch/named_output.hpp"
#include "launch/output.hpp"
#include "launch/prompts.hpp"
#include "launch/run_options.hpp"
#include "launch/session.hpp"
#include "launch/sweep_options.hpp"
#include "launch/topology_files.hpp"
#include "runtime/report/comparable.hpp"
#include "runtime/report/compare/comparing.hpp"
#include "runtime/report/document.hpp"
#include "topology/comparing.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::launch {
namespace {

constexpr const char* kCommand = "compare";
constexpr const char* kWhat =
    "compares two or more reports of bench or scale with the first: what differs between the runs, in the order of "
    "its\n"
    "effect, then each point's TPOT with a verdict (same, faster, slower, unclear) and where the difference comes "
    "from.\n"
    "Or two or more machines by their topologies (all that topo --file reads): what differs, and what that means for\n"
    "tensor parallelism.\n\nusage: shardscope compare FILE FILE [FILE…] [options]";
constexpr const char* kExample =
    "shardscope compare before.json after.json --html compared.html\n  shardscope compare aws-p4.txt azure-nc-a100.txt";
constexpr size_t kMostFiles = 8;

po::options_description option_list() {
  po::options_description options("options");
  options.add_options()  //
      ("file", po::value<std::vector<std::string>>()->composing()->value_name("FILE"),
       "a report or a machine; the same as a word without an option")                                        //
      ("force", po::bool_switch(), "compare reports that did not measure the same work, differences first")  //
      ("json", po::value<std::string>()->value_name("FILE"), "write the document; - for standard output")    //
      ("html", po::value<std::string>()->value_name("FILE"), "write a page with tables and charts, of reports");
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

runtime::Json topologies_json(const topology::Comparison& comparison, const std::vector<std::string>& files) {
  runtime::Json json = {{"schema", "shardscope.compare/1"},
                        {"files", files},
                        {"names", comparison.names},
                        {"reports", runtime::Json::array()},
                        {"incomparable", runtime::Json::array()},
                        {"differences", runtime::Json::array()},
                        {"points", runtime::Json::array()},
                        {"lone_points", runtime::Json::array()},
                        {"summary", comparison.summary}};
  for (const topology::Difference& difference : comparison.differences) {
    json["differences"].push_back(
        {{"what", difference.what}, {"values", difference.values}, {"effect", difference.effect}});
  }
  return json;
}

/// What was asked for, and the files as they were read.
struct Request {
  std::vector<std::string> files, names, texts;
  bool force = false;
  std::string json, html;

  std::string label(size_t at) const { return files[at] == "-" ? "standard input" : files[at]; }
};

/// The files of a command line, checked for their number and for outputs that would overwrite them.
Request request_of(const po::variables_map& values) {
  Request request{
      .force = values["force"].as<bool>(), .json = file_named(values, "json"), .html = file_named(values, "html")};
  if (values.count("file") > 0) request.files = values["file"].as<std::vector<std::string>>();
  const size_t count = request.files.size();
  if (count < 2 || count > kMostFiles) {
    throw UserError(fmt::format("{} file{} to compare", count, count == 1 ? "" : "s"), "shardscope compare",
                    fmt::format("name 2 to {}: shardscope compare A B", kMostFiles));
  }
  check_two_outputs(request.json, "--json", request.html, "--html");
  for (const std::string& file : request.files) check_not_read(file, "compare", {request.json, request.html});
  request.names = short_names(request.files);
  return request;
}

/// Whether the files are reports (else topologies). Throws UserError where there are some of each.
bool all_reports(const Request& request) {
  std::vector<bool> reports;
  for (const std::string& text : request.texts) reports.push_back(runtime::is_report(text));
  const auto first = std::find(reports.begin(), reports.end(), true);
  const auto other = std::find(reports.begin(), reports.end(), false);
  if (first == reports.end() || other == reports.end()) return other == reports.end();
  const auto label = [&](auto at) { return request.label(static_cast<size_t>(at - reports.begin())); };
  throw UserError(
      fmt::format("a report among topologies, or the other way round: {} is a report, and {} is not", label(first),
                  label(other)),
      "shardscope compare",
      "compare reports with reports; of a report's machine, topo --file REPORT --json FILE gives the topology");
}

/// On standard output, or beside a document that is written there.
void show(const std::string& text, const NamedOutput& document, const NamedOutput& page) {
  if (document.on_standard_output() || page.on_standard_output()) {
    write_error(text);
  } else {
    write_out(text);
  }
}

void compare_reports_of(const Request& request, Session& session) {
  std::vector<runtime::ReadReport> reports;
  for (size_t at = 0; at < request.texts.size(); ++at) {
    reports.push_back(runtime::read_report(request.texts[at], request.label(at), request.names[at]));
  }
  const std::vector<std::string> facts = runtime::incomparable_facts(reports);
  if (!facts.empty() && !request.force) {
    constexpr size_t kNamed = 3;
    const size_t named = std::min(facts.size(), kNamed);
    const auto end = facts.begin() + static_cast<std::ptrdiff_t>(named);
    const std::string more = facts.size() > named ? fmt::format("; and {} more", facts.size() - named) : "";
    throw UserError(
        fmt::format("the reports did not measure the same work: {}{}", fmt::join(facts.begin(), end, "; "), more),
        fmt::format("{}", fmt::join(request.files, ", ")), "--force compares them all the same");
  }
  NamedOutput document(request.json);
  NamedOutput page(request.html);
  const runtime::ReportComparison comparison = runtime::compare_reports(reports);
  show(runtime::comparison_text(comparison, reports, error_columns()), document, page);
  const runtime::Json json = runtime::comparison_json(comparison, reports);
  document.write(runtime::document_text(json), session);
  if (!request.html.empty()) page.write(runtime::comparison_page(json), session);
}

void compare_topologies_of(const Request& request, Session& session) {
  for (const auto& [given, option] : {std::pair(request.force, "--force"), {!request.html.empty(), "--html"}}) {
    if (given) throw UserError("an option for reports, and these are topologies", option, "leave it out");
  }
  NamedOutput document(request.json);
  std::vector<topology::Topology> topologies;
  for (size_t at = 0; at < request.texts.size(); ++at) {
    topologies.push_back(topology::read_topology({.text = request.texts[at], .file = request.label(at)}));
  }
  const topology::Comparison comparison = compare_topologies(topologies, request.names);
  show(topology::comparison_text(comparison, error_columns()), document, NamedOutput(""));
  document.write(runtime::document_text(topologies_json(comparison, request.files)), session);
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
  Request request = request_of(settings.values);
  const TextLimit limit{.bytes = runtime::kLargestReportBytes,
                        .beyond = fmt::format("the file is over {} MB", runtime::kLargestReportBytes / 1'000'000),
                        .remedy = "write the report without --samples"};
  for (const std::string& file : request.files) {
    request.texts.push_back(read_text_file(
        file, [&] { session.world.progress("reading standard input"); }, limit));
  }
  if (all_reports(request)) {
    compare_reports_of(request, session);
  } else {
    compare_topologies_of(request, session);
  }
  return 0;
}

}  // namespace shardscope::launch
