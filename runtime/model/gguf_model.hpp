// The meaning of a GGUF file: metadata to ModelConfig and TokenizerSpec.
#pragma once

#include <optional>
#include <string>

#include "runtime/model/config.hpp"
#include "runtime/model/gguf.hpp"
#include "runtime/text/tokenizer_spec.hpp"

namespace shardscope::runtime {

/// Validated configuration. Throws UserError naming the file and the key for what is missing or cannot be run.
ModelConfig gguf_config(const GgufFile& file);

/// The tokenizer in the metadata, or nothing with the reason in `missing_reason` when it is absent or of a kind that is
/// not known. Throws UserError for arrays that contradict each other.
std::optional<TokenizerSpec> gguf_tokenizer(const GgufFile& file, const ModelConfig& config,
                                            std::string& missing_reason);

/// Whether the rows of q and k stand in interleaved rotary order: so for arch llama, not for qwen2.
bool gguf_interleaves_rotary(const ModelConfig& config);

}  // namespace shardscope::runtime
