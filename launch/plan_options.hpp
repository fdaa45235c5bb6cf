// The options of `plan`: which model in which format, on which GPUs, with whose software, and where the answer goes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/command_line.hpp"
#include "launch/run_options.hpp"
#include "launch/session.hpp"
#include "launch/sweep_options.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/plan/plan.hpp"

namespace shardscope::launch {

struct PlanArguments {
  runtime::OpenOptions open;           // without a model: --list, --self-check
  std::string gpu, topology, against;  // as named; empty: not given
  std::vector<int> degrees;            // empty: those of the machine
  int stages = 1;                      // pipeline stages
  std::vector<runtime::Workload> workloads;
  topology::Placement placement = topology::Placement::kBest;
  std::string quantisation = "none";
  int64_t quantisation_group = 0;  // 0: the scheme's own
  std::string kv_dtype = "auto";
  std::string software;
  std::optional<double> slo_tpot_ms;
  std::vector<std::string> calibrate;  // files
  SweepFiles files;
  bool list = false, self_check = false, verbose = false;
};

po::options_description plan_option_list();

/// Sets the world's timeout, too. Throws UserError.
PlanArguments plan_arguments(const po::variables_map& values, Session& session);

/// The known value that was meant by `text`, in capitals or not. Throws UserError: what `text` is not, and the nearest
/// or all that are known.
std::string known_name(std::string_view text, std::string_view option, std::string_view kind,
                       const std::vector<std::string>& known);

/// What make_plan takes, without degrees. Throws UserError for a workload beyond the model's context, more stages than
/// layers, and --quant of weights that are quantised already.
runtime::PlanOptions plan_options(const PlanArguments& arguments, const runtime::OpenedModel& model);

/// --tp on that machine; default: 1, 2, 4, … and all its GPUs. Throws UserError where tp x stages are more than it has.
std::vector<int> plan_degrees(const PlanArguments& arguments, const runtime::PlanMachine& machine);

}  // namespace shardscope::launch
