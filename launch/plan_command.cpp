// shardscope plan: predicts TPOT, TTFT and MBU of a model on GPUs that need not be here, and says what to take. Runs
// nothing; one process does all.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/build_facts.hpp"
#include "launch/config_file.hpp"
#include "launch/environment.hpp"
#include "launch/named_output.hpp"
#include "launch/output.hpp"
#include "launch/plan_machine.hpp"
#include "launch/plan_options.hpp"
#include "launch/prompts.hpp"
#include "launch/report_pair.hpp"
#include "runtime/plan/calibration_files.hpp"
#include "runtime/report/page/page.hpp"
#include "runtime/report/plan_report.hpp"
#include "topology/drawing.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::launch {
namespace {

constexpr const char* kCommand = "plan";
constexpr const char* kWhat =
    "predicts TPOT, TTFT and MBU of a model on GPUs that need not be here, with a range from how wrong it was on\n"
    "published systems; what fits into memory; and which tensor-parallel degree x replicas to take. Runs nothing.";
constexpr const char* kExample =
    "shardscope plan --model llama2-70b --topology aws-p4d --tp 4,8 --batch 1..64x2 --against azure-nc96ads-v4";

/// On standard output, or beside a document that is written there.
void show(const std::string& text, bool beside) {
  if (beside) {
    write_error(text);
  } else {
    write_out(text);
  }
}

int list(const PlanArguments& arguments, const Session& session) {
  const runtime::PlanConstants& constants = runtime::plan_constants();
  NamedOutput document(arguments.files.json);
  if (!document.on_standard_output()) write_out(runtime::catalogue_text(constants));
  document.write(runtime::document_text(runtime::catalogue_json(constants)), session);
  return 0;
}

int check_itself(const PlanArguments& arguments, const Session& session) {
  const runtime::PlanConstants& constants = runtime::plan_constants();
  NamedOutput document(arguments.files.json);
  const runtime::SelfCheck check = runtime::self_check(constants, runtime::plan_calibration());
  show(runtime::self_check_text(check, constants, runtime::plan_calibration()), document.on_standard_output());
  document.write(runtime::document_text(runtime::self_check_json(check)), session);
  for (const runtime::CheckedRule& rule : check.rules) {
    if (!rule.holds) {
      throw SystemError(fmt::format("a rule does not hold: {} ({})", rule.rule, rule.evidence), "plan --self-check",
                        "report it: the constants and the model do not agree");
    }
  }
  return 0;
}

/// The program that predicted; of no host, since none was asked.
runtime::Environment environment_of(const runtime::PlanReport& report, const Session& session) {
  const runtime::PlanMachine& machine = report.machine;
  return {.time = utc_text(std::chrono::system_clock::now()),
          .backend = fmt::format("predicted: {} x {}, {}", machine.gpus(), machine.gpu->name, report.options.software),
          .peak_gb_per_s = machine.gpu->gb_per_s,
          .peak_tflops = report.plan.reach.tflops,
          .build = build_facts(),
          .launcher = session.launcher.name};
}

/// The files that were asked for, opened before anything is reckoned.
ReportPair report_files(const PlanArguments& arguments) {
  const ModelOptions model{.open = arguments.open};
  const auto file = [&](const std::string& name) -> std::optional<runtime::ReportFile> {
    if (name.empty() || name == "-") return std::nullopt;
    return report_file(name, model);
  };
  return {.json = file(arguments.files.json), .csv = file(arguments.files.csv), .html = file(arguments.files.html)};
}

void deliver(const PlanArguments& arguments, const runtime::PlanReport& report, ReportPair files,
             const runtime::Json& in_effect, const Session& session) {
  const runtime::ReportHeader header{.command = kCommand,
                                     .argv = session.argv,
                                     .options = in_effect,
                                     .environment = environment_of(report, session),
                                     .topology = topology::topology_json(report.machine.topology)};
  const runtime::Json document = plan_json(report, header);
  show(plan_text(report), arguments.files.on_standard_output());
  if (arguments.files.json == "-") write_out(runtime::document_text(document));
  if (arguments.files.csv == "-") write_out(plan_csv(report));
  files.finish(runtime::document_text(document), plan_csv(report),
               files.html
                   ? runtime::report_page(document, {.topology_svg = topology::topology_svg(report.machine.topology)})
                   : "");
  for (const std::string& name : {arguments.files.json, arguments.files.csv, arguments.files.html}) {
    if (!name.empty() && name != "-") session.note("report: " + name);
  }
}

/// What --calibrate names, fitted.
runtime::OwnMeasurements own_measurements(const PlanArguments& arguments, const runtime::PlanMachine& machine,
                                          Session& session) {
  if (arguments.calibrate.empty()) return {};
  std::vector<std::string> texts;
  for (const std::string& file : arguments.calibrate) {
    texts.push_back(read_text_file(file, [&] { session.world.progress("reading standard input"); }));
  }
  std::vector<runtime::CalibrationText> files;
  for (size_t i = 0; i < texts.size(); ++i) files.push_back({.text = texts[i], .file = arguments.calibrate[i]});
  return read_calibration(files, machine, runtime::plan_constants(), runtime::plan_calibration(), arguments.software);
}

/// The same plan on another machine. What the user measured of links and memory is not of that one.
std::string against_other(const PlanArguments& arguments, const runtime::PlanReport& here,
                          const runtime::PlanMachine& other) {
  runtime::PlanOptions options = here.options;
  std::erase_if(options.degrees, [&](int degree) { return degree * options.stages > other.gpus(); });
  if (options.degrees.empty()) {
    throw UserError(fmt::format("{} has {} GPU{}, fewer than any row needs", other.name, other.gpus(),
                                other.gpus() == 1 ? "" : "s"),
                    fmt::format("--against {}", arguments.against), "use smaller degrees");
  }
  const runtime::OwnMeasurements own{.sums = {}, .overhead_us = here.own.overhead_us};
  const runtime::Plan plan = make_plan(here.model, other, options, here.constants, here.calibration, own);
  return against_text(here.machine, here.plan, other, plan, here.model.config.name);
}

void plan_one(const PlanArguments& arguments, const runtime::Json& in_effect, Session& session) {
  const runtime::PlanConstants& constants = runtime::plan_constants();
  const runtime::PlanMachine machine = plan_machine(arguments.gpu, arguments.topology, session);
  std::optional<runtime::PlanMachine> other;
  if (!arguments.against.empty()) other = machine_against(arguments.against, arguments.gpu, session);
  const runtime::OpenedModel model = runtime::open_model(arguments.open);
  if (arguments.verbose && !model.config.ignored_keys.empty()) {
    session.note(fmt::format("keys that nothing reads: {}", fmt::join(model.config.ignored_keys, ", ")));
  }
  runtime::PlanOptions options = plan_options(arguments, model);
  options.degrees = plan_degrees(arguments, machine);
  ReportPair files = report_files(arguments);
  const runtime::Calibration& calibration = runtime::plan_calibration();
  const runtime::OwnMeasurements own = own_measurements(arguments, machine, session);
  const runtime::Plan plan = make_plan(model, machine, options, constants, calibration, own);
  runtime::PlanReport report{model, machine, options, constants, calibration, own, plan};
  if (other) {
    report.against = against_other(arguments, report, *other);
    for (const std::string& warning : other->topology.warnings) {
      report.against_warnings.push_back(fmt::format("{}: {}", other->name, warning));
    }
  }
  deliver(arguments, report, std::move(files), in_effect, session);
}

}  // namespace

int plan_command(Session& session, const std::vector<std::string>& words) {
  const po::options_description options = plan_option_list();
  const Settings settings = command_settings(options, words, kCommand, session);
  if (settings.values["help"].as<bool>()) {
    if (session.speaks()) write_out(help_text(kCommand, kWhat, options, kExample));
    return 0;
  }
  const PlanArguments arguments = settings.with_origins([&] { return plan_arguments(settings.values, session); });
  if (!session.speaks()) return 0;
  if (arguments.list) return list(arguments, session);
  if (arguments.self_check) return check_itself(arguments, session);
  plan_one(arguments, settings.in_effect(), session);
  return 0;
}

}  // namespace shardscope::launch
