#include "launch/sweep_command.hpp"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/config_file.hpp"
#include "launch/engine.hpp"
#include "launch/environment.hpp"
#include "launch/host_topology.hpp"
#include "launch/interrupt.hpp"
#include "launch/output.hpp"
#include "launch/prompts.hpp"
#include "launch/rehearsal.hpp"
#include "launch/run_end.hpp"
#include "launch/sweep_record.hpp"
#include "launch/workplaces.hpp"
#include "runtime/report/comparable.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"
#include "topology/activity.hpp"
#include "topology/device_peaks.hpp"
#include "topology/drawing.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::launch {
namespace {

using runtime::PointResult;

constexpr const char* kEnd = "end of the sweep";  // what ranks wait for

std::vector<int32_t> real_prompt(const SweepArguments& arguments, const runtime::OpenedModel& model, Session& session) {
  if (!arguments.prompt_file) return {};
  std::vector<std::vector<int32_t>> ids;
  if (session.speaks()) {
    PromptOptions prompts{.file = arguments.prompt_file};
    prompts.alive = [&] { session.world.progress("reading standard input"); };
    ids.push_back(encode_prompts(prompts, arguments.sweep.tokenizer, model.config).front().ids);
  }
  return share_ids(session, ids).front();
}

void print_plan(const SweepArguments& arguments, const runtime::OpenedModel& model, Session& session) {
  if (!session.speaks()) return;
  const runtime::SweepOptions& sweep = arguments.sweep;
  const runtime::Workload& workload = sweep.workloads.front();  // whose bytes per step are shown
  const runtime::DecoderOptions shape =
      runtime::decoder_options(sweep.workloads, sweep.max_step_tokens, sweep.precision);
  const std::string document = runtime::document_text(shards_json(model, sweep.degrees, workload, shape));
  if (arguments.files.json == "-") {
    write_out(document);
    return;
  }
  if (!arguments.files.json.empty()) report_file(arguments.files.json, arguments.model).finish(document);
  write_out(shards_table(model, sweep.degrees, workload, shape));
}

/// What shards may take: the host's memory or the cgroup's limit, or less where others have taken of it. 0: unknown.
int64_t free_memory_bytes(const runtime::Environment& environment) {
  const int64_t limit = environment.memory_limit_bytes;
  const int64_t available = environment.system.memory_available_bytes.value_or(limit);
  return limit == 0 ? available : std::min(limit, available);
}

/// Reads the report that --resume names, on rank 0. `planned`: this run's own, still without points.
void take_over(SweepArguments& arguments, const runtime::Json& planned, std::vector<std::string>& warnings,
               const Session& session) {
  const std::string& file = arguments.files.resume;
  if (file.empty()) return;
  runtime::Continued earlier = runtime::continue_report(file, planned);
  const std::vector<int>& degrees = arguments.sweep.degrees;
  const auto left_out = std::erase_if(earlier.points, [&](const PointResult& point) {
    return std::find(degrees.begin(), degrees.end(), point.tp) == degrees.end();
  });
  const std::vector<topology::PlacedGroup> groups = arguments.sweep.all_groups();
  const auto elsewhere = std::erase_if(earlier.points, [&](const PointResult& point) {
    return std::none_of(groups.begin(), groups.end(), [&](const topology::PlacedGroup& group) {
      return group.places == point.places() && group.replicas == point.group.replicas;
    });
  });
  const size_t points = arguments.sweep.point_count();
  const auto halves = std::count_if(earlier.points.begin(), earlier.points.end(), [](const PointResult& point) {
    return point.status == runtime::PointStatus::kIncomplete;
  });
  if (!arguments.model.quiet()) {
    const auto whole = static_cast<int64_t>(earlier.points.size()) - halves;
    const std::string half = halves > 0 ? fmt::format(", and the first visit of {} more", halves) : "";
    session.note(fmt::format("{} of {} points are taken over from {}{}", whole, points, file, half));
  }
  if (left_out > 0) {
    earlier.warnings.push_back(
        fmt::format("{} point{} of {} left out: {} does not name {} degree", left_out, left_out == 1 ? "" : "s", file,
                    arguments.sweep.rehearsal ? "--rehearse" : "--tp", left_out == 1 ? "its" : "their"));
  }
  if (elsewhere > 0) {
    earlier.warnings.push_back(
        fmt::format("{} point{} of {} left out: no group of this run (--placement, --replicas) is on {} devices",
                    elsewhere, elsewhere == 1 ? "" : "s", file, elsewhere == 1 ? "its" : "their"));
  }
  const auto any = [&](bool samples) {
    return std::any_of(earlier.points.begin(), earlier.points.end(), [&](const PointResult& point) {
      return point.status == runtime::PointStatus::kOk && point.samples.empty() != samples;
    });
  };
  if (any(true) && !arguments.samples) {
    earlier.warnings.push_back(fmt::format("the samples in {} are left out: --samples keeps them", file));
  }
  if (any(false) && arguments.samples) {
    earlier.warnings.push_back(fmt::format("points of {} have no samples: it was measured without --samples", file));
  }
  warnings.insert(warnings.end(), earlier.warnings.begin(), earlier.warnings.end());
  arguments.sweep.done = std::move(earlier.points);
}

void note_files(const ReportFiles& files, const SweepArguments& arguments, const Session& session) {
  if (arguments.model.quiet()) return;
  for (const auto* file : {&files.json, &files.csv}) {
    const auto partial = *file ? (*file)->partial_path() : std::nullopt;
    if (partial) session.note("until the end, points are kept in " + *partial);
  }
}

void print_results(const SweepKind& kind, const SweepArguments& arguments, const SweepRecord& record,
                   const std::vector<PointResult>& points, const Session& session) {
  std::string table = fmt::format("\n{}", kind.table(points));
  for (const std::string& sentence : kind.advice(points)) table += fmt::format("\n{}", runtime::wrapped(sentence));
  if (arguments.files.on_standard_output()) {
    session.note(table);
    write_out(arguments.files.json == "-" ? record.json_text() : record.csv_text());
  } else {
    write_out(table);
  }
}

/// Shows all that was measured, then writes the files: each step is tried, whatever becomes of the others. Throws what
/// the first of them threw.
void deliver(const SweepRecord::Subject& subject, SweepRecord& record, const std::vector<PointResult>& points,
             const Session& session) {
  const SweepArguments& arguments = subject.arguments;
  record.complete(points);
  std::exception_ptr not_shown;
  try {
    print_results(subject.kind, arguments, record, points, session);
  } catch (const Error&) {
    not_shown = std::current_exception();
  }
  record.finish();
  for (const std::string& name : {arguments.files.json, arguments.files.csv, arguments.files.html}) {
    if (!name.empty() && name != "-" && !arguments.model.quiet()) session.note("report: " + name);
  }
  if (not_shown) std::rethrow_exception(not_shown);
}

/// What rank 0 does more than the others: it shows, keeps and writes what is measured.
void measure_recorded(const SweepRecord::Subject& subject, ReportFiles files, std::vector<std::string> warnings,
                      kernels::Backend& backend, Session& session) {
  const SweepArguments& arguments = subject.arguments;
  SweepRecord record(subject, std::move(files), std::move(warnings));
  // Declared last: when something fails while a signal is being answered, its end comes before that of what it uses.
  std::optional<InterruptWatch> watch(std::in_place, [&](const char* signal) {
    say_interrupted([&](const auto& name) { return record.interrupted(name); }, signal, session);
  });
  std::vector<PointResult> points;
  try {
    points = run_sweep(session.world, backend, subject.model, arguments.sweep, record.progress());
    deliver(subject, record, points, session);
  } catch (...) {
    const std::string kept = record.failed();
    if (!kept.empty()) session.note(kept);
    throw;
  }
  watch.reset();
  session.world.barrier(kEnd);
  if (std::all_of(points.begin(), points.end(),
                  [](const PointResult& point) { return point.status == runtime::PointStatus::kOutOfMemory; })) {
    const bool devices = !arguments.sweep.device_free_bytes.empty();
    throw SystemError(
        fmt::format("nothing was measured: no point fits {} memory", devices ? "the devices'" : "this host's"),
        subject.model.config.name,
        fmt::format("use a smaller or quantised model, --layers, {}or shorter lengths", devices ? "more ranks, " : ""));
  }
}

/// What the backend means for the sweep.
void use_engine(runtime::SweepOptions& sweep, const Engine& engine, const Session& session, const Place& place,
                const PlacementPlan& plan) {
  sweep.on_device = engine.on_device;
  sweep.emulated = engine.emulated;
  sweep.graphs = engine.graphs;
  sweep.device_free_bytes = engine.free_bytes();
  sweep.device_reserved_bytes = engine.reserved_bytes;
  if (!engine.on_devices()) {
    sweep.place_of_group = [&session, &place, &plan](const topology::PlacedGroup& group) {
      if (plan.seats.empty() || !session.world.one_host()) {
        return group_place(session.world, place, group.ranks());
      }
      std::vector<std::vector<int>> cores;
      for (const int at : group.places) cores.push_back(plan.seats[static_cast<size_t>(at)].cores);
      return group_place(place, cores);
    };
    return;
  }
  sweep.place_of_group = [&engine](const topology::PlacedGroup& placed) {
    runtime::GroupPlace group;
    for (const int at : placed.places) {
      for (int replica = 0; replica < placed.replicas; ++replica) {
        const size_t device = static_cast<size_t>(at) + replica * placed.places.size();
        group.cache_bytes += engine.devices[device].facts.l2_bytes;
      }
    }
    return group;
  };
  // The driver's own figures; the table of data sheets (topology/device_peaks) is chosen by name, which --gpu will do.
  const cuda::DeviceFacts& first = engine.devices.front().facts;
  constexpr double kKilo = 1e3;
  if (!sweep.peaks.gb_per_s && !engine.emulated && first.memory_clock_khz > 0 && first.memory_bus_bits > 0) {
    sweep.peaks.gb_per_s = topology::bandwidth_of_clock(first.memory_clock_khz / kKilo, first.memory_bus_bits);
  }
}

void measure(const SweepKind& kind, SweepArguments& arguments, const runtime::OpenedModel& model,
             const BackendChoice& choice, const runtime::Json& in_effect, Session& session) {
  std::optional<ReportFiles> files;
  if (session.speaks()) files.emplace(arguments);
  const std::optional<topology::Topology> topology = host_topology(choice, session);
  const bool of_many = arguments.sweep.rehearsal && !choice.on_devices;
  const Place place = of_many ? take_place_of_many(session, arguments.model.threads, arguments.sweep.degrees)
                              : take_place(session, arguments.model.threads, choice, topology);
  const topology::ActivityProbe activity(place.cores);
  std::optional<runtime::Tokenizer> tokenizer;
  if (session.speaks() && model.tokenizer) tokenizer.emplace(*model.tokenizer);
  runtime::SweepOptions& sweep = arguments.sweep;
  sweep.activity = &activity;
  sweep.threads = place.threads;
  sweep.valid_vocab = valid_vocabulary(model);
  sweep.tokenizer = tokenizer ? &*tokenizer : nullptr;
  sweep.prompt_ids = real_prompt(arguments, model, session);
  const PlacementPlan plan = plan_placements(arguments.placements, sweep.degrees, choice, topology, place, session);
  sweep.groups = plan.groups;
  EngineRequest request = engine_request(arguments.model, model, choice, session);
  request.moves = plan.moves();
  if (choice.on_devices) {
    for (const int at : plan.later_places(session.world.rank())) {
      request.later_devices.push_back(choice.ordinals[static_cast<size_t>(at)]);
    }
  }
  Engine engine = make_engine(request, choice, place, session);
  use_engine(sweep, engine, session, place, plan);
  if (sweep.rehearsal) use_for_rehearsal(sweep, engine, request, place, topology);
  Workplaces workplaces(plan, request, choice, engine, place, session);
  if (request.moves) sweep.take = [&](const topology::PlacedGroup& group) { return workplaces.take(group); };
  runtime::ReportHeader header{.command = kind.defaults.command,
                               .argv = session.argv,
                               .options = in_effect,
                               .environment = capture_environment(session, place, engine),
                               .topology = topology ? topology::topology_json(*topology) : runtime::Json(nullptr),
                               .samples = arguments.samples};
  header.environment.peak_gb_per_s = sweep.peaks.gb_per_s;
  header.environment.peak_tflops = sweep.peaks.tflops;
  sweep.free_memory_bytes = free_memory_bytes(header.environment);
  if (!session.speaks()) {
    const InterruptWatch watch([&](const char* signal) { hold_on(signal, session); });
    run_sweep(session.world, *engine.backend, model, sweep, {});
    session.world.barrier(kEnd);
    return;
  }
  std::vector<std::string> warnings = place_warnings(session.world, place);
  take_over(arguments, report_json(header, model, sweep, {}), warnings, session);
  for (const std::string& warning : warnings) session.note("warning: " + warning);
  for (const std::string& note : plan.notes) {
    session.note(fmt::format("note: {}", note));
    warnings.push_back(note);
  }
  note_files(*files, arguments, session);
  measure_recorded({kind, arguments, model, header, topology ? topology::topology_svg(*topology) : ""},
                   std::move(*files), std::move(warnings), *engine.backend, session);
}

}  // namespace

int sweep_command(const SweepKind& kind, Session& session, const std::vector<std::string>& words) {
  const po::options_description options = sweep_option_list(kind.defaults);
  const Settings settings = command_settings(options, words, kind.defaults.command, session);
  if (settings.values["help"].as<bool>()) {
    if (session.speaks()) write_out(help_text(kind.defaults.command, kind.what_it_does, options, kind.example));
    return 0;
  }
  SweepArguments arguments =
      settings.with_origins([&] { return sweep_arguments(settings.values, kind.defaults, session); });
  const runtime::OpenedModel model = open_model_noted(arguments.model, session);
  check_lengths(arguments.sweep, model.config);
  const BackendChoice choice = choose_backend(arguments.model, session);
  arguments.sweep.precision = precision_of(arguments.model, model, choice.on_devices);
  if (arguments.model.dry_run) {
    print_plan(arguments, model, session);
    return 0;
  }
  measure(kind, arguments, model, choice, settings.in_effect(), session);
  return 0;
}

}  // namespace shardscope::launch
