// The built-in configurations: published dimensions of well-known models, for runs without a checkpoint.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/model/config.hpp"

namespace shardscope::runtime {

/// The configuration of that name, if there is one. All names: named_configurations() in open_model.hpp.
std::optional<ModelConfig> named_configuration(std::string_view name);

/// Whether it can be run. Of the others only the dimensions are known: enough for shard plans and predictions.
bool named_configuration_runs(std::string_view name);

}  // namespace shardscope::runtime
