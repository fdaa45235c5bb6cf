// shardscope scale: the main job. Sweeps tensor-parallel degrees in one launch and shows what each brings.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/command_line.hpp"
#include "launch/environment.hpp"
#include "launch/model_options.hpp"
#include "launch/output.hpp"
#include "launch/prompts.hpp"
#include "launch/session.hpp"
#include "runtime/measure/sweep.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/report_file.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {
namespace {

struct ScaleArguments {
  ModelOptions model;
  runtime::SweepOptions sweep;
  std::optional<std::string> prompt_file;
  std::string json;  // empty: none; "-": standard output
};

po::options_description option_list() {
  po::options_description options("options");
  options.add_options()  //
      ("tp", po::value<std::string>()->value_name("LIST"),
       "tensor-parallel degrees: 1,2,4 or 1..8 or 1..8x2; default: 1, 2, 4, … and the number of ranks")               //
      ("batch", po::value<std::string>()->default_value("1")->value_name("LIST"), "sequences at once")                //
      ("prompt-tokens", po::value<std::string>()->default_value("512")->value_name("LIST"), "tokens of each prompt")  //
      ("output-tokens", po::value<std::string>()->default_value("128")->value_name("LIST"), "tokens generated")       //
      ("prompt-file", po::value<std::string>()->value_name("FILE"),
       "text for the prompts, cut or repeated to their length; default: random tokens")                              //
      ("warmup", po::value<int64_t>()->default_value(3)->value_name("N"), "generations before measuring")            //
      ("iterations", po::value<int64_t>()->default_value(10)->value_name("N"), "generations measured per point")     //
      ("max-seconds", po::value<double>()->default_value(60)->value_name("S"), "longest measuring time of a point")  //
      ("peak-bandwidth", po::value<double>()->value_name("GB_PER_S"),
       "data-sheet memory bandwidth of one rank's share in GB/s (10^9); without it MBU against it is null")  //
      ("json", po::value<std::string>()->value_name("FILE"), "write the report; - for standard output");
  add_model_options(options);
  return options;
}

/// 1, 2, 4, … and the number of ranks.
std::vector<int> default_degrees(int ranks) {
  std::vector<int> degrees;
  for (int degree = 1; degree < ranks; degree *= 2) degrees.push_back(degree);
  degrees.push_back(ranks);
  return degrees;
}

ScaleArguments arguments_of(const po::variables_map& values, Session& session) {
  ScaleArguments arguments{.model = model_options(values, session)};
  runtime::SweepOptions& sweep = arguments.sweep;
  const int ranks = session.world.size();
  if (values.count("tp") > 0) {
    const int64_t most = arguments.model.dry_run ? parallel::kMaxRanks : std::max(ranks, parallel::kMaxRanks);
    for (const int64_t degree : parse_list(values["tp"].as<std::string>(), "--tp", 1, most)) {
      sweep.degrees.push_back(static_cast<int>(degree));
    }
    if (sweep.degrees.back() > ranks && !arguments.model.dry_run) {
      throw UserError(
          fmt::format("{} rank{} started, --tp {}", ranks, ranks == 1 ? "" : "s", sweep.degrees.back()), "command line",
          fmt::format("start more ranks (mpirun -np {} …) or use degrees up to {}", sweep.degrees.back(), ranks));
    }
  } else {
    sweep.degrees = default_degrees(ranks);
  }
  const auto list = [&](const char* name, int64_t least, int64_t most) {
    return parse_list(values[name].as<std::string>(), std::string("--") + name, least, most);
  };
  constexpr int64_t kLongest = 1 << 24;
  for (const int64_t prompt : list("prompt-tokens", 1, kLongest)) {
    for (const int64_t output : list("output-tokens", 1, kLongest)) {
      for (const int64_t batch : list("batch", 1, 4096)) {
        sweep.workloads.push_back({.batch = batch, .prompt_tokens = prompt, .output_tokens = output});
      }
    }
  }
  sweep.warmup = values["warmup"].as<int64_t>();
  check_range(sweep.warmup, "--warmup", 1, 1000);
  sweep.iterations = values["iterations"].as<int64_t>();
  check_range(sweep.iterations, "--iterations", 1, 1'000'000);
  sweep.max_seconds = values["max-seconds"].as<double>();
  if (!(sweep.max_seconds > 0 && std::isfinite(sweep.max_seconds)))
    throw UserError("not a positive number of seconds", "--max-seconds", "use e.g. 60");
  if (values.count("peak-bandwidth") > 0) {
    sweep.peak_gb_per_s = values["peak-bandwidth"].as<double>();
    if (!(*sweep.peak_gb_per_s > 0 && std::isfinite(*sweep.peak_gb_per_s)))
      throw UserError("not a positive bandwidth", "--peak-bandwidth", "use GB/s, e.g. 200");
  }
  sweep.seed = arguments.model.open.seed;
  sweep.communicator = arguments.model.communicator;
  if (values.count("prompt-file") > 0) arguments.prompt_file = values["prompt-file"].as<std::string>();
  if (values.count("json") > 0) arguments.json = values["json"].as<std::string>();
  return arguments;
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

std::vector<int32_t> real_prompt(const ScaleArguments& arguments, const runtime::OpenedModel& model, Session& session) {
  if (!arguments.prompt_file) return {};
  std::vector<std::vector<int32_t>> ids;
  if (session.speaks()) {
    std::optional<runtime::Tokenizer> tokenizer;
    if (model.tokenizer) tokenizer.emplace(*model.tokenizer);
    PromptOptions prompts{.file = arguments.prompt_file};
    prompts.alive = [&] { session.world.progress("reading standard input"); };
    ids.push_back(encode_prompts(prompts, tokenizer ? &*tokenizer : nullptr, model.config).front().ids);
  }
  return share_ids(session, ids).front();
}

void print_plan(const ScaleArguments& arguments, const runtime::OpenedModel& model, Session& session) {
  if (!session.speaks()) return;
  const runtime::Workload& workload = arguments.sweep.workloads.front();  // whose bytes per step are shown
  const runtime::DecoderOptions shape =
      runtime::decoder_options(arguments.sweep.workloads, arguments.sweep.max_step_tokens);
  const std::string document = runtime::document_text(shards_json(model, arguments.sweep.degrees, workload, shape));
  if (arguments.json == "-") {
    write_out(document);
    return;
  }
  if (!arguments.json.empty()) runtime::ReportFile(arguments.json).finish(document);
  write_out(shards_table(model, arguments.sweep.degrees, workload, shape));
}

std::vector<std::string> warnings_of(const Place& place, Session& session) {
  std::vector<std::string> warnings;
  if (place.oversubscribed) {
    warnings.push_back(
        fmt::format("ranks > cores: {} ranks with {} thread{} each share {} usable cores; degrees above {} show "
                    "overhead, not scaling",
                    session.world.host_size(), place.threads, place.threads == 1 ? "" : "s", place.host.usable_cores(),
                    std::max<int64_t>(1, place.host.usable_cores() / place.threads)));
  }
  return warnings;
}

}  // namespace

int scale_command(Session& session, const std::vector<std::string>& words) {
  const po::options_description options = option_list();
  const po::variables_map values = parse_arguments(options, words, "scale");
  if (values["help"].as<bool>()) {
    if (session.speaks()) {
      write_out(help_text("scale",
                          "Loads the model at each tensor-parallel degree in turn, measures TTFT, TPOT and memory\n"
                          "bandwidth utilisation (MBU), and prints one row per degree and workload.",
                          options, "mpirun -np 4 shardscope scale --model model.gguf --tp 1,2,4 --json report.json"));
    }
    return 0;
  }
  ScaleArguments arguments = arguments_of(values, session);
  const runtime::OpenedModel model = open_model_noted(arguments.model, session);
  check_lengths(arguments.sweep, model.config);
  if (arguments.model.dry_run) {
    print_plan(arguments, model, session);
    return 0;
  }
  const bool document_on_stdout = arguments.json == "-";
  std::optional<runtime::ReportFile> file;
  if (session.speaks() && !arguments.json.empty() && !document_on_stdout) {
    file.emplace(report_file(arguments.json, arguments.model));
    if (!arguments.model.quiet)
      session.note(fmt::format("until the end, points are kept in {}.partial", arguments.json));
  }

  const Place place = take_place(session, arguments.model.threads);
  arguments.sweep.place_of_group = [&](int tp) { return group_place(session.world, place, tp); };
  arguments.sweep.host_memory_bytes = place.host.memory_bytes;
  arguments.sweep.valid_vocab = valid_vocabulary(model);
  arguments.sweep.prompt_ids = real_prompt(arguments, model, session);
  const auto backend = backend_for(arguments.model, place, session);
  const runtime::ReportHeader header{.command = "scale",
                                     .argv = session.argv,
                                     .environment = capture_environment(session, place, backend->description())};
  const std::vector<std::string> warnings = warnings_of(place, session);
  for (const std::string& warning : warnings) session.note("warning: " + warning);

  std::vector<runtime::PointResult> measured;
  const auto document = [&](const std::vector<runtime::PointResult>& points, bool complete) {
    return runtime::document_text(
        report_json(header, model, arguments.sweep, points, runtime::speedup_advice(points), warnings, complete));
  };
  const runtime::SweepProgress progress{.say =
                                            [&](const std::string& line) {
                                              if (!arguments.model.quiet) session.note(line);
                                            },
                                        .point =
                                            [&](const runtime::PointResult& point) {
                                              measured.push_back(point);
                                              if (!arguments.model.quiet) session.note(runtime::point_line(point));
                                              if (file) file->write_partial(document(measured, false));
                                            }};
  const std::vector<runtime::PointResult> points = run_sweep(session.world, *backend, model, arguments.sweep, progress);
  if (session.speaks()) {
    if (file) file->finish(document(points, true));
    std::string table = "\n" + scale_table(points);
    for (const std::string& sentence : runtime::speedup_advice(points)) table += "\n" + sentence + "\n";
    if (document_on_stdout) {
      session.note(table);
      write_out(document(points, true));
    } else {
      write_out(table);
    }
    if (file) session.note("report: " + file->path());
  }
  session.world.barrier("end of the sweep");
  const auto measured_at_all = [](const runtime::PointResult& point) {
    return point.status != runtime::PointStatus::kOutOfMemory;
  };
  if (session.speaks() && std::none_of(points.begin(), points.end(), measured_at_all)) {
    throw SystemError("nothing was measured: no point fits this host's memory", model.config.name,
                      "use a smaller or quantised model, --layers, or shorter lengths");
  }
  return 0;
}

}  // namespace shardscope::launch
