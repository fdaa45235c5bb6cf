// The options that mean the same in every command: which model, on which backend, sharded how.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/backend.hpp"
#include "launch/command_line.hpp"
#include "launch/run_options.hpp"
#include "launch/session.hpp"
#include "parallel/communicator.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/report/report_file.hpp"

namespace shardscope::launch {

struct ModelOptions {
  runtime::OpenOptions open;
  BackendKind backend = BackendKind::kAuto;
  std::optional<kernels::DType> kv_dtype;  // nullopt: as the activations
  bool graphs = true;                      // on devices
  kernels::ActivationMode activations = kernels::ActivationMode::kAuto;
  parallel::CommunicatorKind communicator = parallel::CommunicatorKind::kAuto;
  bool shared_devices = false;  // --oversubscribe-devices
  std::optional<int64_t> threads;
  bool dry_run = false;
  ProgressMode progress = ProgressMode::kLines;
  bool verbose = false;

  bool quiet() const { return progress == ProgressMode::kNever; }
};

/// Adds the shared options to a command's description.
void add_model_options(po::options_description& options);

/// Values of the shared options; sets the world's timeout. Throws UserError.
ModelOptions model_options(const po::variables_map& values, Session& session);

/// Opens the model on every rank and, with -v, notes what was ignored.
runtime::OpenedModel open_model_noted(const ModelOptions& options, const Session& session);

/// The report file that a command was asked for; `earlier`: for one that grows. Throws UserError, also when it is the
/// model's own file, or one that stands already in the model's folder.
runtime::ReportFile report_file(const std::string& path, const ModelOptions& options,
                                const std::optional<runtime::EarlierPartial>& earlier = std::nullopt);

/// Ids below it have a token and may be drawn.
int64_t valid_vocabulary(const runtime::OpenedModel& model);

}  // namespace shardscope::launch
