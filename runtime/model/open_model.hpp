// From what a user names with --model to values and an open weight source.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/model/config.hpp"
#include "runtime/model/weights.hpp"
#include "runtime/text/tokenizer_spec.hpp"

namespace shardscope::runtime {

struct OpenOptions {
  std::string model;                         // folder, .gguf, config.json, or a named configuration
  bool synthetic = false;                    // --weights synthetic
  std::optional<int64_t> layers = {};        // --layers
  std::optional<kernels::DType> dtype = {};  // --dtype: of unquantised weights; nullopt = auto
  uint64_t seed = 0;                         // of synthetic weights
  bool headers_only = false;                 // --dry-run: a bare config.json will do; files are validated all the same
};

struct OpenedModel {
  ModelConfig config;
  std::unique_ptr<WeightSource> weights;        // never null; synthetic where only shapes are known
  std::optional<TokenizerSpec> tokenizer;       // absent for named configurations and folders without tokenizer.json
  std::string tokenizer_missing_reason;         // why `tokenizer` is absent, for whoever needs one; else empty
  std::string kind;                             // "gguf", "safetensors", "synthetic", "config"
  kernels::DType dtype = kernels::DType::kF32;  // of unquantised matrices after conversion (for people and the ledger)
};

/// Opens and validates everything up to the data. Throws UserError (what, where, what to do) for anything a stranger
/// can hand us: unknown names (listing the known), pickles, LFS pointers, malformed headers, missing or unused tensors,
/// unsupported values of keys that change the result. A tokenizer that cannot be read is no error here.
/// The name of a built-in configuration wins over a file of the same name: ./tiny is the file.
OpenedModel open_model(const OpenOptions& options);

/// Names of the built-in configurations, for help texts.
std::vector<std::string> named_configurations();

}  // namespace shardscope::runtime
