#include "runtime/model/gguf_model.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"

namespace shardscope::runtime {
namespace {

constexpr std::array<std::string_view, 2> kArchitectures = {"llama", "qwen2"};

/// Keys below the architecture's prefix; remembers which were read.
class ArchitectureKeys {
 public:
  ArchitectureKeys(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(fmt::format("{}.", architecture)) {}

  [[noreturn]] void fail(const std::string& what, std::string_view what_to_do = "use another checkpoint") const {
    throw UserError(what, file_.path(), what_to_do);
  }
  std::string key(std::string_view name) {
    read_.push_back(prefix_ + std::string(name));
    return read_.back();
  }

  /// A count from 1 to `limit`. A list of one count for each layer is taken if all are the same.
  std::optional<int64_t> optional_count(std::string_view name, int64_t limit) {
    const std::string full = key(name);
    std::optional<int64_t> value;
    if (file_.is_array(full)) {
      const std::vector<int64_t> list = *file_.whole_numbers(full);
      if (list.empty() || std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) != list.end()) {
        fail(fmt::format("{} differs between layers, which cannot be run", full));
      }
      value = list.front();
    } else {
      value = file_.whole_number(full);
    }
    if (value && (*value < 1 || *value > limit))
      fail(fmt::format("{} is {}: must be from 1 to {}", full, *value, limit));
    return value;
  }
  int64_t count(std::string_view name, int64_t limit) {
    const std::optional<int64_t> value = optional_count(name, limit);
    if (!value) fail(fmt::format("the key {}{} is missing", prefix_, name));
    return *value;
  }
  std::optional<double> number(std::string_view name) { return file_.number(key(name)); }

  std::vector<std::string> unread() const {
    std::vector<std::string> out;
    for (const std::string_view name : file_.keys()) {
      if (name.starts_with("general.") || name.starts_with("tokenizer.") || name.starts_with("split.")) continue;
      if (std::find(read_.begin(), read_.end(), name) == read_.end()) out.push_back(printable(name));
    }
    return out;
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
  std::vector<std::string> read_;
};

/// Keys that change the result and that nothing here honours, with the value at which they do nothing.
void refuse_other_models(const GgufFile& file, ArchitectureKeys& keys) {
  struct Unsupported {
    std::string_view name;
    double neutral;
    std::string_view what;
  };
  static constexpr std::array<Unsupported, 13> kUnsupported = {{
      {"expert_count", 0, "mixture-of-experts models"},
      {"expert_used_count", 0, "mixture-of-experts models"},
      {"attention.sliding_window", 0, "sliding windows"},
      {"attention.clamp_kqv", 0, "clipping of q, k, v"},
      {"attention.max_alibi_bias", 0, "ALiBi"},
      {"attention.scale", 0, "an attention scale of its own"},
      {"attn_logit_softcapping", 0, "soft caps"},
      {"final_logit_softcapping", 0, "soft caps"},
      {"logit_scale", 0, "scaled logits"},
      {"residual_scale", 0, "scaled residuals"},
      {"embedding_scale", 0, "scaled embeddings"},
      {"rope.scaling.attn_factor", 1, "attention factors"},
      {"attention.layer_norm_epsilon", 0, "layer norms"},
  }};
  for (const Unsupported& unsupported : kUnsupported) {
    const std::string key = keys.key(unsupported.name);
    if (!file.has(key)) continue;
    double value = 0;
    if (unsupported.what == "sliding windows" || unsupported.what == "mixture-of-experts models") {
      value = static_cast<double>(*file.whole_number(key));
    } else {
      value = *file.number(key);
    }
    if (value != unsupported.neutral && value != 0) {
      keys.fail(fmt::format("{} is {}: {} cannot be run", key, value, unsupported.what));
    }
  }
}

std::vector<float> read_divisors(const GgufFile& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name != "rope_freqs.weight") continue;
    if (tensor.type != "F32" || tensor.shape.size() != 1) {
      throw UserError("tensor rope_freqs.weight must be a vector of F32", file.path(), "convert the file again");
    }
    std::vector<float> divisors(tensor.data.size() / sizeof(float));
    std::memcpy(divisors.data(), tensor.data.data(), divisors.size() * sizeof(float));
    return divisors;
  }
  return {};
}

RopeConfig read_rope(const GgufFile& file, ArchitectureKeys& keys, int64_t head_dim) {
  RopeConfig rope;
  rope.theta = keys.number("rope.freq_base").value_or(rope.theta);
  const int64_t rotated = keys.optional_count("rope.dimension_count", 1 << 12).value_or(head_dim);
  if (rotated != head_dim) {
    keys.fail(fmt::format("rope.dimension_count {} is not the head size {}: only whole heads are rotated here", rotated,
                          head_dim));
  }
  const std::optional<std::string_view> type = file.text(keys.key("rope.scaling.type"));
  const std::optional<double> old_factor = keys.number("rope.scale_linear");
  const std::optional<double> factor = keys.number("rope.scaling.factor");
  keys.key("rope.scaling.original_context_length");
  if (type && *type != "none" && *type != "linear") {
    keys.fail(fmt::format("rope.scaling.type is {}: rotary types that can be run are none, linear", printable(*type)));
  }
  if (type ? *type == "linear" : (old_factor || factor)) {
    rope.scaling = RopeConfig::Scaling::kLinear;
    rope.factor = factor ? *factor : old_factor.value_or(1.0);
  }
  rope.divisors = read_divisors(file);
  return rope;
}

void read_special_tokens(const GgufFile& file, ModelConfig& config) {
  const auto id = [&](std::string_view name) -> std::optional<int32_t> {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    const std::optional<int64_t> value = file.whole_number(key);
    if (!value || *value == 0xFFFFFFFF) return {};  // all ones: no such token
    if (*value < 0 || *value >= config.vocab) {
      throw UserError(fmt::format("{} is {}: the vocabulary has {} entries", key, *value, config.vocab), file.path(),
                      "convert the file again");
    }
    return static_cast<int32_t>(*value);
  };
  config.bos_id = id("bos");
  for (const std::string_view name : {"eos", "eot", "eom"}) {
    if (const std::optional<int32_t> stop = id(name)) config.eos_ids.push_back(*stop);
  }
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  config.eos_ids.erase(std::unique(config.eos_ids.begin(), config.eos_ids.end()), config.eos_ids.end());
}

const StoredTensor* tensor_named(const GgufFile& file, const std::string& name) {
  const auto found = std::find_if(file.tensors().begin(), file.tensors().end(),
                                  [&](const StoredTensor& tensor) { return tensor.name == name; });
  return found == file.tensors().end() ? nullptr : &*found;
}

int64_t read_vocab(const GgufFile& file, ArchitectureKeys& keys) {
  const std::optional<int64_t> said = keys.optional_count("vocab_size", 1 << 24);
  const StoredTensor* embedding = tensor_named(file, weight_name({Role::kEmbedding}, Naming::kGguf));
  if (embedding == nullptr || embedding->shape.size() != 2)
    keys.fail("tensor token_embd.weight is missing or no matrix");
  const int64_t rows = embedding->shape.front();
  if (said && *said != rows) keys.fail(fmt::format("vocab_size is {} but token_embd.weight has {} rows", *said, rows));
  return rows;
}

}  // namespace

bool gguf_interleaves_rotary(const ModelConfig& config) {
  return config.architecture == "llama";
}

ModelConfig gguf_config(const GgufFile& file) {
  const std::optional<std::string_view> architecture = file.text("general.architecture");
  if (!architecture) throw UserError("the key general.architecture is missing", file.path(), "use a model file");
  if (std::find(kArchitectures.begin(), kArchitectures.end(), *architecture) == kArchitectures.end()) {
    throw UserError(fmt::format("general.architecture {} cannot be run", printable(*architecture)), file.path(),
                    fmt::format("known are {}", fmt::join(kArchitectures, ", ")));
  }
  if (const std::optional<int64_t> parts = file.whole_number("split.count"); parts && *parts > 1) {
    throw UserError(fmt::format("split.count is {}: files split into parts cannot be opened yet", *parts), file.path(),
                    "merge the parts with llama.cpp's llama-gguf-split --merge");
  }
  ArchitectureKeys keys(file, *architecture);
  refuse_other_models(file, keys);
  ModelConfig config;
  config.architecture = *architecture;
  config.layers = keys.count("block_count", 4096);
  config.layers_in_file = config.layers;
  config.hidden = keys.count("embedding_length", 1 << 20);
  config.ffn = keys.count("feed_forward_length", 1 << 22);
  config.query_heads = keys.count("attention.head_count", 1 << 14);
  config.kv_heads = keys.optional_count("attention.head_count_kv", 1 << 14).value_or(config.query_heads);
  const std::optional<int64_t> key_length = keys.optional_count("attention.key_length", 1 << 12);
  const std::optional<int64_t> value_length = keys.optional_count("attention.value_length", 1 << 12);
  if (!key_length && config.hidden % config.query_heads != 0) {
    keys.fail(fmt::format("embedding_length {} is not a multiple of attention.head_count {}", config.hidden,
                          config.query_heads));
  }
  config.head_dim = key_length.value_or(config.hidden / config.query_heads);
  if (value_length.value_or(config.head_dim) != config.head_dim) {
    keys.fail(fmt::format("attention.value_length {} is not the key length {}", *value_length, config.head_dim));
  }
  config.max_positions = keys.count("context_length", int64_t{1} << 31);
  const std::optional<double> epsilon = keys.number("attention.layer_norm_rms_epsilon");
  if (!epsilon) keys.fail("the key attention.layer_norm_rms_epsilon is missing");
  config.norm_epsilon = static_cast<float>(*epsilon);
  config.vocab = read_vocab(file, keys);
  config.rope = read_rope(file, keys, config.head_dim);
  const auto in_first_layer = [&](Role role) {
    return tensor_named(file, weight_name({role, 0}, Naming::kGguf)) != nullptr;
  };
  config.attention_in_bias = config.architecture == "qwen2" || in_first_layer(Role::kQueryBias);
  config.attention_out_bias = in_first_layer(Role::kAttentionOutBias);
  config.mlp_bias = in_first_layer(Role::kGateBias);
  read_special_tokens(file, config);
  config.ignored_keys = keys.unread();
  config.validate(file.path());
  return config;
}

}  // namespace shardscope::runtime
