#include "launch/sweep_options.hpp"

#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/rehearsal.hpp"

namespace shardscope::launch {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLongest = 1 << 24;
constexpr int64_t kLargestBatch = 4096;

runtime::Protocol protocol_of(const po::variables_map& values, const SweepDefaults& defaults, uint64_t seed) {
  runtime::Protocol protocol = defaults.protocol;
  if (values.count("warmup") > 0) {
    protocol.warmup = values["warmup"].as<int64_t>();
    check_range(*protocol.warmup, "--warmup", 1, 1000);
  }
  if (values.count("iterations") > 0) {
    protocol.iterations = values["iterations"].as<int64_t>();
    check_range(*protocol.iterations, "--iterations", 1, 1'000'000);
  }
  protocol.max_seconds = positive(values, "max-seconds", "number of seconds", "use e.g. 60");
  protocol.seed = seed;
  constexpr std::array<std::string_view, 2> kSwitch = {"on", "off"};
  protocol.instrumented = parse_choice(values["attribution"].as<std::string>(), "--attribution", kSwitch) == 0;
  return protocol;
}

/// A name for the file however it is reached; files that do not exist yet have one, too.
fs::path resolved(const std::string& name) {
  std::error_code code;
  const fs::path path = fs::weakly_canonical(fs::absolute(name, code), code);
  return code ? fs::path(name) : path;
}

bool same_file(const fs::path& a, const fs::path& b) {
  std::error_code code;
  return a == b || (fs::equivalent(a, b, code) && !code);
}

/// Whether writing `report` (or its partial file) writes to `other`, too.
bool overwrites(const std::string& report, const fs::path& other) {
  const fs::path target = resolved(report);
  return same_file(target, other) || same_file(target.string() + ".partial", other);
}

bool is_file(const std::string& name) {
  return !name.empty() && name != "-";
}

}  // namespace

std::vector<runtime::Workload> sweep_workloads(const po::variables_map& values) {
  const auto list = [&](const char* name, int64_t most) {
    return parse_list(values[name].as<std::string>(), std::string("--") + name, 1, most);
  };
  std::vector<runtime::Workload> workloads;
  for (const int64_t prompt : list("prompt-tokens", kLongest)) {
    for (const int64_t output : list("output-tokens", kLongest)) {
      for (const int64_t batch : list("batch", kLargestBatch)) {
        workloads.push_back({.batch = batch, .prompt_tokens = prompt, .output_tokens = output});
      }
    }
  }
  return workloads;
}

po::options_description sweep_option_list(const SweepDefaults& defaults) {
  const std::string degrees =
      fmt::format("tensor-parallel degrees: 1,2,4 or 1..8 or 1..8x2; default: {}the number of ranks",
                  defaults.powers_of_two ? "1, 2, 4, … and " : "");
  const std::string iterations = fmt::format(
      "generations measured per point, unless --max-seconds ends them; default: at least {} and until the median is "
      "known to "
      "within {:g} %",
      defaults.protocol.least_generations, defaults.protocol.noise_bound * 100);
  const std::string max_seconds = fmt::format(
      "longest measuring time of a point; warming up may take as long again. Whatever the limit, a visit makes at "
      "least {} generations to warm up (or --warmup) and 1 that is measured",
      runtime::kLeastWarmUp);
  po::options_description options("options");
  options.add_options()                                                      //
      ("tp", po::value<std::string>()->value_name("LIST"), degrees.c_str())  //
      ("placement", po::value<std::string>()->default_value("linear")->value_name("LIST"),
       "which devices form a group of fewer ranks than there are: linear (the first ranks'), best, worst (by the links "
       "between them, on a CPU by caches and NUMA nodes); each that shows something of its own is measured")          //
      ("batch", po::value<std::string>()->default_value("1")->value_name("LIST"), "sequences at once")                //
      ("prompt-tokens", po::value<std::string>()->default_value("512")->value_name("LIST"), "tokens of each prompt")  //
      ("output-tokens", po::value<std::string>()->default_value("128")->value_name("LIST"), "tokens generated")       //
      ("prompt-file", po::value<std::string>()->value_name("FILE"),
       "text for the prompts, cut or repeated to their length; default: random tokens")  //
      ("warmup", po::value<int64_t>()->value_name("N"),
       "generations before measuring, exactly, at each of the two visits of a degree; default: at least 3 and until "
       "steady")                                                                 //
      ("iterations", po::value<int64_t>()->value_name("N"), iterations.c_str())  //
      ("max-seconds", po::value<double>()->default_value(defaults.protocol.max_seconds)->value_name("S"),
       max_seconds.c_str())  //
      ("peak-bandwidth", po::value<double>()->value_name("GB_PER_S"),
       "data-sheet memory bandwidth of one rank's share in GB/s (10^9); without it MBU against it is null")  //
      ("peak-tflops", po::value<double>()->value_name("TFLOPS"),
       "dense compute peak of one rank's share in TFLOP/s (10^12); without it MFU is null")  //
      ("attribution", po::value<std::string>()->default_value("on")->value_name("WHEN"),
       "on: generations with instruments alternate with the others and tell where TPOT goes; off: half the time")  //
      ("samples", po::bool_switch(), "keep each generation's figures in the report")                               //
      ("json", po::value<std::string>()->value_name("FILE"), "write the report; - for standard output")            //
      ("csv", po::value<std::string>()->value_name("FILE"), "write a line for each point; - for standard output")  //
      ("html", po::value<std::string>()->value_name("FILE"),
       "write a page for a browser: plots, tables, the report")  //
      ("resume", po::value<std::string>()->value_name("FILE"),
       "take over the points of an earlier report of the same run, e.g. report.json.partial");
  if (defaults.rehearses) {
    options.add_options()("replicas", po::bool_switch(),
                          "where a degree leaves room for several groups, measures all of them at once, too");
    add_rehearsal_options(options);
  }
  add_model_options(options);
  return options;
}

SweepArguments sweep_arguments(const po::variables_map& values, const SweepDefaults& defaults, Session& session) {
  SweepArguments arguments{.model = model_options(values, session)};
  runtime::SweepOptions& sweep = arguments.sweep;
  sweep.degrees = rehearsed_degrees(values, session.world.size());
  if (sweep.degrees.empty()) {
    sweep.degrees = sweep_degrees(values, defaults, session.world.size(), arguments.model.dry_run);
    if (!arguments.model.dry_run && wants_replicas(values, sweep.degrees, session.world.size())) {
      sweep.replica_ranks = session.world.size();
    }
  } else {
    sweep.rehearsal = rehearsal_options(values, session);
  }
  sweep.workloads = sweep_workloads(values);
  sweep.protocol = protocol_of(values, defaults, arguments.model.open.seed);
  if (values.count("peak-bandwidth") > 0) {
    sweep.peaks.gb_per_s = positive(values, "peak-bandwidth", "bandwidth", "use GB/s, e.g. 200");
  }
  if (values.count("peak-tflops") > 0) {
    sweep.peaks.tflops = positive(values, "peak-tflops", "compute peak", "use TFLOP/s, e.g. 2.5");
  }
  sweep.communicator = arguments.model.communicator;
  sweep.activations = arguments.model.activations;
  if (values.count("prompt-file") > 0) arguments.prompt_file = values["prompt-file"].as<std::string>();
  arguments.samples = values["samples"].as<bool>();
  arguments.placements.clear();
  for (const size_t i : parse_names(values["placement"].as<std::string>(), "--placement", topology::kPlacementNames)) {
    arguments.placements.push_back(topology::kPlacements[i]);
  }
  arguments.files = {.json = file_named(values, "json"),
                     .csv = file_named(values, "csv"),
                     .resume = file_named(values, "resume"),
                     .html = file_named(values, "html")};
  check_files(arguments.files);
  check_inputs(arguments.files, values, {"config", "prompt-file", "topology"});
  if (arguments.samples && arguments.files.json.empty() && arguments.files.html.empty()) {
    throw UserError("the samples are part of the report alone", "--samples", "add --json FILE or --html FILE");
  }
  for (const char* name : {"csv", "html", "resume"}) {
    if (!arguments.model.dry_run || values.count(name) == 0) continue;
    throw UserError("--dry-run measures no points", std::string("--") + name, "leave one of them out");
  }
  return arguments;
}

std::vector<int> sweep_degrees(const po::variables_map& values, const SweepDefaults& defaults, int ranks,
                               bool dry_run) {
  std::vector<int> degrees;
  if (values.count("tp") == 0) {
    for (int degree = 1; defaults.powers_of_two && degree < ranks; degree *= 2) degrees.push_back(degree);
    degrees.push_back(ranks);
    return degrees;
  }
  const int64_t most = std::max(ranks, parallel::kMaxRanks);
  for (const int64_t degree : parse_list(values["tp"].as<std::string>(), "--tp", 1, most)) {
    degrees.push_back(static_cast<int>(degree));
  }
  if (degrees.back() > ranks && !dry_run) {
    throw UserError(fmt::format("{} rank{} started, --tp {}", ranks, ranks == 1 ? "" : "s", degrees.back()),
                    "command line",
                    fmt::format("start more ranks (mpirun -np {} …) or use degrees up to {}", degrees.back(), ranks));
  }
  return degrees;
}

bool wants_replicas(const po::variables_map& values, const std::vector<int>& degrees, int ranks) {
  if (values.count("replicas") == 0 || !values["replicas"].as<bool>()) return false;
  if (values["placement"].as<std::string>() != "linear") {
    throw UserError("replicas take all ranks' places", "--replicas, --placement", "leave one of them out");
  }
  if (ranks < 2 * degrees.front()) {
    throw UserError(fmt::format("no degree has room for two groups on {} rank{}", ranks, ranks == 1 ? "" : "s"),
                    "--replicas", fmt::format("start at least {} ranks", 2 * degrees.front()));
  }
  return true;
}

double positive(const po::variables_map& values, const char* name, const char* what, const char* remedy) {
  const auto value = values[name].as<double>();
  if (value > 0 && std::isfinite(value)) return value;
  throw UserError(std::string("not a positive ") + what, std::string("--") + name, remedy);
}

std::string file_named(const po::variables_map& values, const char* option) {
  if (values.count(option) == 0) return "";
  auto text = values[option].as<std::string>();
  if (text.empty())
    throw UserError("an empty name", std::string("--") + option, "name a file, or leave the option out");
  return text;
}

void check_inputs(const SweepFiles& files, const po::variables_map& values,
                  std::initializer_list<const char*> options) {
  for (const char* input : options) {
    const std::string name = values.count(input) > 0 ? values[input].as<std::string>() : "";
    for (const std::string& report : {files.json, files.csv, files.html}) {
      if (!is_file(name) || !is_file(report) || !overwrites(report, resolved(name))) continue;
      throw UserError(fmt::format("the report would overwrite what --{} reads", input), report, "name another file");
    }
  }
}

void check_files(const SweepFiles& files) {
  if (files.json == "-" && files.csv == "-") {
    throw UserError("two documents for standard output", "--json -, --csv -", "name a file for one of them");
  }
  if (files.html == "-") throw UserError("a page is for a browser", "--html -", "name a file, e.g. --html report.html");
  const std::array<std::pair<const char*, const std::string&>, 3> reports = {
      {{"--json", files.json}, {"--csv", files.csv}, {"--html", files.html}}};
  for (size_t i = 0; i < reports.size(); ++i) {
    const auto& [option, report] = reports[i];
    if (!is_file(report)) continue;
    for (size_t other = 0; other < i; ++other) {
      const auto& [other_option, other_report] = reports[other];
      if (!is_file(other_report)) continue;
      if (!overwrites(other_report, resolved(report)) && !overwrites(report, resolved(other_report))) continue;
      throw UserError(
          fmt::format("{} and {} would overwrite each other ({}, {})", other_option, option, other_report, report),
          "command line", "name two files");
    }
    // JSON goes on where it stands.
    if (&report == &files.json || files.resume.empty() || !overwrites(report, resolved(files.resume))) continue;
    throw UserError(fmt::format("{} {} would overwrite the report that --resume reads", option, report), "command line",
                    "name another file");
  }
}

void check_lengths(const runtime::SweepOptions& sweep, const runtime::ModelConfig& config) {
  for (const runtime::Workload& workload : sweep.workloads) {
    const int64_t length = workload.prompt_tokens + workload.output_tokens;
    if (length > config.max_positions) {
      throw UserError(fmt::format("{} prompt + {} output tokens exceed the model's context of {}",
                                  workload.prompt_tokens, workload.output_tokens, config.max_positions),
                      "--prompt-tokens, --output-tokens", "use shorter ones");
    }
  }
}

}  // namespace shardscope::launch
