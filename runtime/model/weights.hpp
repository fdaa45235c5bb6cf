// The tensors of a Llama-style model: one table of rules that loading, the memory ledger, the traffic model and the
// printed plan all walk, and the interface that every weight file stands behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/range.hpp"
#include "kernels/dtype.hpp"
#include "runtime/model/config.hpp"

namespace shardscope::runtime {

enum class Role : uint8_t {
  kEmbedding,         // [vocab, hidden]
  kHead,              // [vocab, hidden]; absent when tied
  kFinalNorm,         // [hidden]
  kAttentionNorm,     // [hidden]
  kQuery,             // [query_heads * head_dim, hidden]
  kKey,               // [kv_heads * head_dim, hidden]
  kValue,             // [kv_heads * head_dim, hidden]
  kAttentionOut,      // [hidden, query_heads * head_dim]
  kFfnNorm,           // [hidden]
  kGate,              // [ffn, hidden]
  kUp,                // [ffn, hidden]
  kDown,              // [hidden, ffn]
  kQueryBias,         // [query_heads * head_dim]
  kKeyBias,           // [kv_heads * head_dim]
  kValueBias,         // [kv_heads * head_dim]
  kAttentionOutBias,  // [hidden]
  kGateBias,          // [ffn]
  kUpBias,            // [ffn]
  kDownBias,          // [hidden]
};

/// How a tensor is divided over the ranks.
enum class Cut : uint8_t {
  kReplicate,     // every rank has it whole
  kQueryRows,     // rows of the rank's query heads
  kKvRows,        // rows of the KV heads that its query heads need
  kQueryColumns,  // columns of its query heads; partial sums meet in an all-reduce
  kFfnRows,
  kFfnColumns,  // partial sums meet in an all-reduce
  kVocabRows,
  kFirstRank,  // bias of a row-parallel product: added once
};

struct WeightRule {
  Role role;
  std::string_view hf_name;  // "{}" stands for the layer number
  std::string_view gguf_name;
  bool per_layer;
  bool vector;  // one-dimensional
  Cut cut;
};

/// All rules, in the order in which a model is listed. `shape_of` and `expected` derive the rest.
std::span<const WeightRule> weight_rules();
const WeightRule& rule_of(Role role);

struct WeightId {
  Role role;
  int64_t layer = -1;  // -1 for tensors outside the layers
  bool operator==(const WeightId&) const = default;
};

struct WeightShape {
  int64_t rows = 0;  // 1 for vectors
  int64_t columns = 0;
};

/// Shape of a tensor of the whole model.
WeightShape shape_of(const ModelConfig& config, Role role);

/// Whether a model of this configuration has tensors of that role.
bool has_weight(const ModelConfig& config, Role role);

/// Every tensor that a model of this configuration has, in table order (no head when tied, biases where configured).
std::vector<WeightId> expected_weights(const ModelConfig& config);

/// How many parameters a model of this configuration has; a tied head counts once.
int64_t parameter_count(const ModelConfig& config);

/// Whose names a file uses for its tensors.
enum class Naming : uint8_t { kHuggingFace, kGguf };

/// The name of one tensor, with the layer number in place.
std::string weight_name(WeightId id, Naming naming = Naming::kHuggingFace);

/// The tensors of one checkpoint. Rows of q and k (and their biases) are always in half-split rotary order, whatever
/// the file's. Thread-compatible: concurrent reads are allowed. Read-only after construction.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Stored type of a tensor. Throws BugError for a tensor outside expected_weights.
  virtual kernels::DType dtype(WeightId id) const = 0;
  /// Copies rows x columns of the tensor, as stored, row after row, into out
  /// (rows.size() * row_bytes(dtype, columns.size()) bytes). Column bounds lie on block borders. Touches no other
  /// bytes of the file.
  virtual void read(WeightId id, Range rows, Range columns, std::span<std::byte> out) const = 0;
  /// What identifies the weights in a report: a hash over the file headers and sizes, or the seed of synthetic weights.
  virtual std::string identity() const = 0;
};

}  // namespace shardscope::runtime
