// shardscope comm: how long an all-reduce takes, in every way that these ranks have, by size.
#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/comm_options.hpp"
#include "launch/comm_record.hpp"
#include "launch/config_file.hpp"
#include "launch/engine.hpp"
#include "launch/environment.hpp"
#include "launch/host_topology.hpp"
#include "launch/interrupt.hpp"
#include "launch/output.hpp"
#include "launch/run_end.hpp"
#include "parallel/cuda_library.hpp"
#include "parallel/host_sum_bench.hpp"

namespace shardscope::launch {
namespace {

using parallel::SumBench;
using runtime::SumCase;

constexpr const char* kWhat =
    "measures the all-reduce of tensor parallelism: each size in every way of summing, its sums checked, and from "
    "which "
    "size on which way is the fastest";
constexpr const char* kExample = "mpirun -np 2 shardscope comm --min-bytes 1024 --max-bytes 65536";
constexpr const char* kEnd = "end of the sweep";  // what ranks wait for

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What a degree's ranks measure with.
struct Group {
  std::unique_ptr<parallel::Communicator> control;  // for what they tell each other
  std::unique_ptr<SumBench> bench;
};

/// Collective over the degree's ranks.
Group make_group(const CommPlan& plan, const CommArguments& arguments, const Engine& engine, const Place& place, int tp,
                 Session& session) {
  parallel::World& world = session.world;
  parallel::CommunicatorOptions options{.group_size = tp,
                                        .kind = parallel::CommunicatorKind::kMpi,
                                        .oversubscribed = group_place(world, place, tp).oversubscribed};
  Group group;
  group.control = make_communicator(world, options);
  options.kind = parallel::CommunicatorKind::kAuto;
  if (!engine.on_devices()) {
    options.max_floats = plan.most_bytes() / static_cast<int64_t>(sizeof(float));
    group.bench = std::make_unique<parallel::HostSumBench>(world, options);
    return group;
  }
  const parallel::CudaLibrary* library = parallel::cuda_library().library;
  require(library != nullptr, "devices without a library for them");
  std::unique_ptr<parallel::Communicator> host = make_communicator(world, options);
  std::vector<parallel::CommunicatorKind> kinds = arguments.ways;
  if (kinds.empty()) kinds.push_back(parallel::CommunicatorKind::kAuto);
  group.bench = library->make_sum_bench(world, std::move(host), *engine.backend, kinds, arguments.shared_devices);
  return group;
}

std::string doing_text(const SumCase& sum, const std::string& way, int64_t samples) {
  return fmt::format("tp {}, {}, {} B: {}, {} samples", sum.tp, kernels::facts(sum.dtype).name, sum.bytes(), way,
                     samples);
}

/// Measures all sums at one degree. Collective over its ranks. record: of rank 0.
void measure_degree(const CommPlan& plan, const Group& group, int tp, CommRecord* record) {
  std::vector<runtime::LeftOutWay> left_out;
  const std::vector<SumBench::Way> ways = chosen_ways(plan, *group.bench, tp, left_out);
  for (const SumBench::Way& way : ways) {
    if (way.most_bytes >= plan.most_bytes()) continue;
    left_out.push_back({.tp = tp, .way = way.name, .why = fmt::format("of messages above {} bytes", way.most_bytes)});
  }
  if (record != nullptr) record->leave_out(left_out);
  for (SumCase sum : plan.cases) {
    sum.tp = tp;
    std::vector<std::string> fitting;
    for (const SumBench::Way& way : ways) {
      if (sum.bytes() <= way.most_bytes) fitting.push_back(way.name);
    }
    runtime::SumGroup of{.bench = *group.bench, .control = *group.control, .now_seconds = now_seconds, .tell = {}};
    if (record != nullptr) {
      of.tell = [&](const std::string& way, int64_t samples) { record->tick(doing_text(sum, way, samples)); };
    }
    std::vector<runtime::SumRow> rows = measure_sum(of, sum, fitting, plan.protocol);
    if (record != nullptr) record->add(rows);
  }
}

/// Visits the degrees in turn; ranks outside a degree wait. Collective over all ranks.
void sweep(const CommPlan& plan, const CommArguments& arguments, const Engine& engine, const Place& place,
           CommRecord* record, Session& session) {
  for (const int tp : plan.degrees) {
    if (session.world.rank() < tp) {
      measure_degree(plan, make_group(plan, arguments, engine, place, tp, session), tp, record);
    } else {
      session.world.progress("idle, not in the group");
    }
    session.world.barrier("end of a degree");
  }
}

void print_results(const CommArguments& arguments, const CommRecord& record, const Session& session) {
  const std::string table = fmt::format("\n{}", record.table());
  if (!arguments.files.on_standard_output()) {
    write_out(table);
    return;
  }
  session.note(table);
  write_out(arguments.files.json == "-" ? record.json_text() : record.csv_text());
}

/// What rank 0 does more than the others: it shows, keeps and writes what is measured.
void sweep_recorded(const CommPlan& plan, const CommArguments& arguments, const Engine& engine, const Place& place,
                    CommRecord& record, Session& session) {
  // Declared last: when something fails while a signal is being answered, its end comes before that of what it uses.
  std::optional<InterruptWatch> watch(std::in_place, [&](const char* signal) {
    say_interrupted([&](const auto& name) { return record.interrupted(name); }, signal, session);
  });
  try {
    sweep(plan, arguments, engine, place, &record, session);
    record.complete();
    std::exception_ptr not_shown;
    try {
      print_results(arguments, record, session);
    } catch (const Error&) {  // the files are tried whatever becomes of the table
      not_shown = std::current_exception();
    }
    record.finish();
    for (const std::string& name : {arguments.files.json, arguments.files.csv}) {
      if (!name.empty() && name != "-" && !arguments.run.quiet()) session.note("report: " + name);
    }
    if (not_shown) std::rethrow_exception(not_shown);
  } catch (...) {
    const std::string kept = record.failed();
    if (!kept.empty()) session.note(kept);
    throw;
  }
  watch.reset();
  session.world.barrier(kEnd);
  record.refuse_wrong();
}

void measure(const CommArguments& arguments, const runtime::Json& in_effect, Session& session) {
  std::optional<CommFiles> files;
  if (session.speaks()) files.emplace(arguments.files);
  const BackendChoice choice = choose_backend(
      {.kind = arguments.backend,
       .sums_on_hosts = std::any_of(arguments.ways.begin(), arguments.ways.end(), parallel::sums_on_hosts),
       .shared_devices = arguments.shared_devices},
      session);
  const CommPlan plan = comm_plan(arguments, choice.on_devices);
  const Place place = take_place(session, std::nullopt, choice);
  const Engine engine =
      make_engine({.shared_devices = arguments.shared_devices, .quiet = arguments.run.quiet()}, choice, place, session);
  runtime::CommReport report{.header = {.command = kCommCommand,
                                        .argv = session.argv,
                                        .options = in_effect,
                                        .environment = capture_environment(session, place, engine)},
                             .protocol = plan.protocol,
                             .emulated = engine.emulated,
                             .rows = {},
                             .left_out = {},
                             .warnings = place_warnings(session.world, place)};
  if (!session.speaks()) {
    const InterruptWatch watch([&](const char* signal) { hold_on(signal, session); });
    sweep(plan, arguments, engine, place, nullptr, session);
    session.world.barrier(kEnd);
    return;
  }
  for (const std::string& warning : report.warnings) session.note(fmt::format("warning: {}", warning));
  for (const std::string& note : plan.notes) {
    session.note(fmt::format("note: {}", note));
    report.warnings.push_back(note);
  }
  CommRecord record(std::move(report), std::move(*files), arguments.run.progress,
                    plan.degrees.size() * plan.cases.size());
  sweep_recorded(plan, arguments, engine, place, record, session);
}

}  // namespace

int comm_command(Session& session, const std::vector<std::string>& words) {
  const po::options_description options = comm_option_list();
  const Settings settings = command_settings(options, words, kCommCommand, session);
  if (settings.values["help"].as<bool>()) {
    if (session.speaks()) write_out(help_text(kCommCommand, kWhat, options, kExample));
    return 0;
  }
  const CommArguments arguments = settings.with_origins([&] { return comm_arguments(settings.values, session); });
  measure(arguments, settings.in_effect(), session);
  return 0;
}

}  // namespace shardscope::launch
