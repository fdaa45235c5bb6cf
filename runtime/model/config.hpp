// What a model is, as values: dimensions, numerics, special tokens. Filled from config.json, GGUF metadata or a named
// configuration; everything after that asks this struct and never a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/dtype.hpp"

namespace shardscope::runtime {

/// Rotary embedding: which frequencies turn which part of a head.
struct RopeConfig {
  enum class Scaling : uint8_t { kNone, kLinear, kLlama3 };
  double theta = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;               // linear, llama3
  double low_freq_factor = 1.0;      // llama3
  double high_freq_factor = 4.0;     // llama3
  int64_t original_positions = 0;    // llama3: the trained length
  std::vector<float> divisors = {};  // GGUF rope_freqs.weight: frequencies are divided by these; empty = none
};

/// Llama-style decoder. Every count is positive once `validate` has passed.
struct ModelConfig {
  std::string name;          // for people: file or folder name, or the named configuration
  std::string architecture;  // the family by which the file was read: "llama", "mistral", "qwen2"
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t query_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 0;
  int64_t vocab = 0;  // rows of the embedding
  int64_t max_positions = 0;
  float norm_epsilon = 1e-5F;
  RopeConfig rope;
  bool tied_embeddings = false;
  bool attention_in_bias = false;   // on q, k, v
  bool attention_out_bias = false;  // on o
  bool mlp_bias = false;            // on gate, up, down
  bool gated_mlp = true;            // down(silu(gate) * up); false: down(activation(up)), which only plans know
  std::optional<int32_t> bos_id;
  std::vector<int32_t> eos_ids;           // union of all sources, ascending
  int64_t layers_in_file = 0;             // differs from `layers` when --layers cut the model
  std::string quantisation;               // of the file, for people: "none", "q4_1", …
  std::vector<std::string> ignored_keys;  // accepted although nothing reads them; shown with -v

  int64_t queries_per_kv() const { return query_heads / kv_heads; }
  /// Throws UserError naming `where` and the key for the first value that is out of bounds or contradicts another.
  void validate(const std::string& where) const;
};

/// Inverse frequencies [head_dim / 2] of the rotation, scaling applied.
/// Sources: arXiv:2104.09864 (RoPE); Llama 3.1 reference code (llama3).
std::vector<float> inverse_frequencies(const RopeConfig& rope, int64_t head_dim);

}  // namespace shardscope::runtime
