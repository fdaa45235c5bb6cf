// The options of every command that measures or generates, with or without a model: how long it waits, what it says.
#pragma once

#include <cstdint>

#include "launch/command_line.hpp"
#include "launch/progress.hpp"
#include "launch/session.hpp"

namespace shardscope::launch {

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
