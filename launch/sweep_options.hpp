// The options of `bench` and `scale`: what is measured, by which rules, and where the report goes.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "launch/command_line.hpp"
#include "launch/config_file.hpp"
#include "launch/model_options.hpp"
#include "launch/session.hpp"
#include "runtime/measure/sweep.hpp"
#include "topology/placement.hpp"

namespace shardscope::launch {

/// What differs between the two commands before anything is measured.
struct SweepDefaults {
  const char* command;
  bool powers_of_two;          // --tp: 1, 2, 4, … and the number of ranks; else that number alone
  runtime::Protocol protocol;  // without --warmup, --iterations, --max-seconds, --seed
  bool rehearses = false;      // --rehearse, --replicas
};

/// Files as they were named; empty: not asked for; "-" (of JSON and CSV): standard output.
struct SweepFiles {
  std::string json, csv;
  std::string resume;  // the report of an earlier run
  std::string html;    // the page

  bool on_standard_output() const { return json == "-" || csv == "-"; }
};

struct SweepArguments {
  ModelOptions model;
  runtime::SweepOptions sweep;
  std::optional<std::string> prompt_file;
  SweepFiles files;
  bool samples = false;
  std::vector<topology::Placement> placements = {topology::Placement::kLinear};  // ascending, each once
};

po::options_description sweep_option_list(const SweepDefaults& defaults);

/// Throws UserError.
SweepArguments sweep_arguments(const po::variables_map& values, const SweepDefaults& defaults, Session& session);

/// --tp, or the command's default. dry_run: degrees beyond the ranks are welcome. Throws UserError.
std::vector<int> sweep_degrees(const po::variables_map& values, const SweepDefaults& defaults, int ranks, bool dry_run);

/// Of --prompt-tokens, --output-tokens and --batch, each with each: batches vary fastest. Throws UserError.
std::vector<runtime::Workload> sweep_workloads(const po::variables_map& values);

/// --replicas. Throws UserError where no degree leaves room for two groups, or with a placement of its own.
bool wants_replicas(const po::variables_map& values, const std::vector<int>& degrees, int ranks);

/// The value of that option, a finite number above 0. Throws UserError with `what` it should be and the remedy.
double positive(const po::variables_map& values, const char* name, const char* what, const char* remedy);

/// The value of that option; empty: not given. Throws UserError for an empty one.
std::string file_named(const po::variables_map& values, const char* option);

/// Throws UserError where a report would overwrite a file that one of these options reads.
void check_inputs(const SweepFiles& files, const po::variables_map& values, std::initializer_list<const char*> options);

/// Throws UserError where the files' names, or their .partial names, would overwrite each other or what is to be read.
void check_files(const SweepFiles& files);

/// Throws UserError unless every workload fits the model's context.
void check_lengths(const runtime::SweepOptions& sweep, const runtime::ModelConfig& config);

}  // namespace shardscope::launch
