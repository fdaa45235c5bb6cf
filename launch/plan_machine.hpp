// From the names that `plan` gets to the machine that it is about: which GPU, how many, and how they are joined.
#pragma once

#include <string>

#include "launch/session.hpp"
#include "runtime/plan/plan.hpp"

namespace shardscope::launch {

/// The row of device_peaks() of that name, or that a driver's name means. Throws UserError with the nearest.
const topology::DevicePeaks& gpu_named(const std::string& name, const char* option);

/// What --gpu and --topology name; empty: not given. Throws UserError where the two do not agree, where neither tells
/// the GPU, and for a machine of several kinds of GPUs.
runtime::PlanMachine plan_machine(const std::string& gpu, const std::string& topology, Session& session);

/// What --against names: a machine, a file, or a GPU. gpu: of --gpu, where a file does not tell.
runtime::PlanMachine machine_against(const std::string& name, const std::string& gpu, Session& session);

}  // namespace shardscope::launch
