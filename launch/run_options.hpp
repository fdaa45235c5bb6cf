// The options of every command that measures or generates, with or without a model: how long it waits, what it says.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "launch/command_line.hpp"
#include "launch/progress.hpp"
#include "launch/session.hpp"

namespace shardscope::launch {

/// Values of --allreduce, in the order of parallel::CommunicatorKind.
inline constexpr std::array<std::string_view, 7> kAllReduceNames = {
    "auto", "nccl", "nccl-symmetric", "one-shot", "two-shot", "mpi", "shm"};

enum class BackendKind : uint8_t { kAuto, kCuda, kCpu };

struct RunOptions {
  ProgressMode progress = ProgressMode::kLines;
  bool verbose = false;

  bool quiet() const { return progress == ProgressMode::kNever; }
};

/// --timeout, --progress, --config, --verbose, --help.
void add_run_options(po::options_description& options);

/// Their values; sets the world's timeout. Throws UserError.
RunOptions run_options(const po::variables_map& values, Session& session);

void add_backend_option(po::options_description& options);

/// --backend. Throws UserError.
BackendKind backend_kind(const po::variables_map& values);

}  // namespace shardscope::launch
