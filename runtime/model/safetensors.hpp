// Strict reader of safetensors files, single and sharded. Accepts and refuses what the reference library does: header
// of at most 100,000,000 bytes, no hole, no overlap, no trailing bytes, sizes that follow from dtype and shape. Source:
// https://github.com/huggingface/safetensors (README, tensor.rs).
#pragma once

#include <string>

#include "runtime/model/file_weights.hpp"

namespace shardscope::runtime {

/// One file. Throws UserError naming the file and the first fault.
StoredTensors read_safetensors(const std::string& path);

/// All files that an index (model.safetensors.index.json) names, which must lie beside it. Throws UserError for a shard
/// that is missing, a tensor that is not in the shard that the index says, and a tensor that the index does not list.
StoredTensors read_sharded_safetensors(const std::string& index_path);

}  // namespace shardscope::runtime
