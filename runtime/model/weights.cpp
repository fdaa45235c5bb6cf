#include "runtime/model/weights.hpp"

#include <array>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

constexpr bool kOnce = false;
constexpr bool kEachLayer = true;
constexpr bool kMatrix = false;
constexpr bool kVector = true;

// Tensors before the layers, those of each layer, those after them.
constexpr std::array<WeightRule, 19> kRules = {{
    {Role::kEmbedding, "model.embed_tokens.weight", "token_embd.weight", kOnce, kMatrix, Cut::kVocabRows},
    {Role::kAttentionNorm, "model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", kEachLayer, kVector,
     Cut::kReplicate},
    {Role::kQuery, "model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", kEachLayer, kMatrix,
     Cut::kQueryRows},
    {Role::kKey, "model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", kEachLayer, kMatrix, Cut::kKvRows},
    {Role::kValue, "model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", kEachLayer, kMatrix,
     Cut::kKvRows},
    {Role::kQueryBias, "model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", kEachLayer, kVector,
     Cut::kQueryRows},
    {Role::kKeyBias, "model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", kEachLayer, kVector, Cut::kKvRows},
    {Role::kValueBias, "model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", kEachLayer, kVector,
     Cut::kKvRows},
    {Role::kAttentionOut, "model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", kEachLayer, kMatrix,
     Cut::kQueryColumns},
    {Role::kAttentionOutBias, "model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", kEachLayer, kVector,
     Cut::kFirstRank},
    {Role::kFfnNorm, "model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", kEachLayer, kVector,
     Cut::kReplicate},
    {Role::kGate, "model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", kEachLayer, kMatrix, Cut::kFfnRows},
    {Role::kUp, "model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", kEachLayer, kMatrix, Cut::kFfnRows},
    {Role::kGateBias, "model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", kEachLayer, kVector, Cut::kFfnRows},
    {Role::kUpBias, "model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", kEachLayer, kVector, Cut::kFfnRows},
    {Role::kDown, "model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", kEachLayer, kMatrix,
     Cut::kFfnColumns},
    {Role::kDownBias, "model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", kEachLayer, kVector,
     Cut::kFirstRank},
    {Role::kFinalNorm, "model.norm.weight", "output_norm.weight", kOnce, kVector, Cut::kReplicate},
    {Role::kHead, "lm_head.weight", "output.weight", kOnce, kMatrix, Cut::kVocabRows},
}};

}  // namespace

std::span<const WeightRule> weight_rules() {
  return kRules;
}

const WeightRule& rule_of(Role role) {
  for (const WeightRule& rule : kRules) {
    if (rule.role == role) return rule;
  }
  throw BugError("rule_of: a role without a rule");
}

bool has_weight(const ModelConfig& config, Role role) {
  switch (role) {
    case Role::kHead:
      return !config.tied_embeddings;
    case Role::kGate:
      return config.gated_mlp;
    case Role::kQueryBias:
    case Role::kKeyBias:
    case Role::kValueBias:
      return config.attention_in_bias;
    case Role::kAttentionOutBias:
      return config.attention_out_bias;
    case Role::kGateBias:
    case Role::kUpBias:
    case Role::kDownBias:
      return config.mlp_bias;
    case Role::kEmbedding:
    case Role::kFinalNorm:
    case Role::kAttentionNorm:
    case Role::kQuery:
    case Role::kKey:
    case Role::kValue:
    case Role::kAttentionOut:
    case Role::kFfnNorm:
    case Role::kUp:
    case Role::kDown:
      return true;
  }
  throw BugError("has_weight: a role outside the enumeration");
}

WeightShape shape_of(const ModelConfig& config, Role role) {
  const int64_t query_rows = config.query_heads * config.head_dim;
  const int64_t kv_rows = config.kv_heads * config.head_dim;
  switch (role) {
    case Role::kEmbedding:
    case Role::kHead:
      return {config.vocab, config.hidden};
    case Role::kFinalNorm:
    case Role::kAttentionNorm:
    case Role::kFfnNorm:
    case Role::kAttentionOutBias:
    case Role::kDownBias:
      return {1, config.hidden};
    case Role::kQuery:
      return {query_rows, config.hidden};
    case Role::kKey:
    case Role::kValue:
      return {kv_rows, config.hidden};
    case Role::kAttentionOut:
      return {config.hidden, query_rows};
    case Role::kGate:
    case Role::kUp:
      return {config.ffn, config.hidden};
    case Role::kDown:
      return {config.hidden, config.ffn};
    case Role::kQueryBias:
      return {1, query_rows};
    case Role::kKeyBias:
    case Role::kValueBias:
      return {1, kv_rows};
    case Role::kGateBias:
    case Role::kUpBias:
      return {1, config.ffn};
  }
  throw BugError("shape_of: a role outside the enumeration");
}

std::vector<WeightId> expected_weights(const ModelConfig& config) {
  std::vector<WeightId> before;
  std::vector<Role> in_layer;
  std::vector<WeightId> after;
  for (const WeightRule& rule : kRules) {
    if (!has_weight(config, rule.role)) continue;
    if (rule.per_layer) {
      in_layer.push_back(rule.role);
    } else {
      (in_layer.empty() ? before : after).push_back({rule.role, -1});
    }
  }
  std::vector<WeightId> all = before;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    for (const Role role : in_layer) all.push_back({role, layer});
  }
  all.insert(all.end(), after.begin(), after.end());
  return all;
}

int64_t parameter_count(const ModelConfig& config) {
  int64_t count = 0;
  for (const WeightId id : expected_weights(config)) {
    const WeightShape shape = shape_of(config, id.role);
    count += shape.rows * shape.columns;
  }
  return count;
}

std::string weight_name(WeightId id, Naming naming) {
  const WeightRule& rule = rule_of(id.role);
  std::string name(naming == Naming::kHuggingFace ? rule.hf_name : rule.gguf_name);
  const size_t hole = name.find("{}");
  if (hole != std::string::npos) name.replace(hole, 2, std::to_string(id.layer));
  return name;
}

}  // namespace shardscope::runtime
