// config.json (and generation_config.json beside it) of a Hugging Face checkpoint to a ModelConfig. Every key that the
// family's reference code reads is honoured or refused by name and value; the others are collected in ignored_keys.
#pragma once

#include <string>

#include "runtime/model/config.hpp"

namespace shardscope::runtime {

/// Reads and validates. generation_config.json is looked for in the same folder; its stop tokens are added.
/// Throws UserError naming the file, the key and the value.
ModelConfig read_config_json(const std::string& path);

}  // namespace shardscope::runtime
