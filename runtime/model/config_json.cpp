#include "runtime/model/config_json.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"

namespace shardscope::runtime {
namespace {

using nlohmann::json;

constexpr int64_t kConfigLimit = 4 << 20;

/// One JSON object: typed reading with errors that name the key, and a list of what nobody read.
class Keys {
 public:
  Keys(const json& object, std::string where, std::string prefix = "")
      : object_(object), where_(std::move(where)), prefix_(std::move(prefix)) {}

  [[noreturn]] void fail(const std::string& what, std::string_view what_to_do = "correct the file") const {
    throw UserError(what, where_, what_to_do);
  }
  [[noreturn]] void refuse(std::string_view key, std::string_view why) {
    fail(fmt::format("{}{} is {}: {}", prefix_, key, printable(value(key)->dump()), why), "use another checkpoint");
  }

  bool present(std::string_view key) const { return object_.contains(key); }

  /// The value of a key; nullptr if it is absent or null.
  const json* value(std::string_view key) {
    read_.insert(std::string(key));
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  std::optional<int64_t> whole_number(std::string_view key) {
    const json* found = value(key);
    if (found == nullptr) return {};
    const bool too_large = found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (!found->is_number_integer() || too_large) wrong_type(key, *found, "a whole number");
    return found->get<int64_t>();
  }
  std::optional<double> number(std::string_view key) {
    const json* found = value(key);
    if (found == nullptr) return {};
    if (!found->is_number()) wrong_type(key, *found, "a number");
    return found->get<double>();
  }
  bool flag(std::string_view key, bool absent) {
    const json* found = value(key);
    if (found == nullptr) return absent;
    if (!found->is_boolean()) wrong_type(key, *found, "true or false");
    return found->get<bool>();
  }
  std::optional<std::string> text(std::string_view key) {
    const json* found = value(key);
    if (found == nullptr) return {};
    if (!found->is_string()) wrong_type(key, *found, "a text");
    return found->get<std::string>();
  }

  /// A count: a whole number from 1 to `limit`; `absent` when the key is absent or null.
  int64_t count(std::string_view key, int64_t absent, int64_t limit) {
    const int64_t found = whole_number(key).value_or(absent);
    if (found < 1 || found > limit) fail(fmt::format("{}{} is {}: must be from 1 to {}", prefix_, key, found, limit));
    return found;
  }

  /// Ids as a number or a list of numbers; empty when absent or null.
  std::vector<int32_t> ids(std::string_view key) {
    const json* found = value(key);
    if (found == nullptr) return {};
    const json list = found->is_array() ? *found : json::array({*found});
    std::vector<int32_t> out;
    for (const json& id : list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
        wrong_type(key, *found, "a token id or a list of them");
      }
      out.push_back(id.get<int32_t>());
    }
    return out;
  }

  void append_unread(std::vector<std::string>& out) const {
    for (const auto& [key, unused] : object_.items()) {
      if (!read_.contains(key)) out.push_back(prefix_ + printable(key));
    }
  }

  const std::string& where() const { return where_; }

 private:
  [[noreturn]] void wrong_type(std::string_view key, const json& found, std::string_view wanted) const {
    fail(fmt::format("{}{} is {}: must be {}", prefix_, key, printable(found.dump()), wanted));
  }

  const json& object_;
  std::string where_;
  std::string prefix_;
  std::set<std::string> read_;
};

/// What transformers assumes where a key is absent. Source: transformers 4.57 configuration_{llama,mistral,qwen2}.py.
struct Family {
  std::string_view architecture;
  std::string_view model_type;
  int64_t hidden;
  int64_t ffn;
  int64_t layers;
  int64_t heads;
  int64_t kv_heads;  // 0: as many as query heads
  int64_t vocab;
  int64_t max_positions;
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
};

constexpr std::array<Family, 3> kFamilies = {{
    {"LlamaForCausalLM", "llama", 4096, 11008, 32, 32, 0, 32000, 2048, 1, 2},
    {"MistralForCausalLM", "mistral", 4096, 14336, 32, 32, 8, 32000, 131072, 1, 2},
    {"Qwen2ForCausalLM", "qwen2", 4096, 22016, 32, 32, 32, 151936, 32768, {}, {}},
}};

const Family& family_of(Keys& keys) {
  for (const std::string_view key : {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"}) {
    if (keys.value(key) != nullptr) keys.refuse(key, "mixture-of-experts models cannot be run");
  }
  std::string architecture;
  if (const json* list = keys.value("architectures"); list != nullptr) {
    if (!list->is_array() || list->empty() || !list->front().is_string()) {
      keys.refuse("architectures", "must be a list of class names");
    }
    architecture = list->front().get<std::string>();
  }
  const std::string model_type = keys.text("model_type").value_or("");
  if (architecture.empty() && model_type.empty())
    keys.fail("neither architectures nor model_type says what model this is");
  std::vector<std::string_view> known;
  for (const Family& family : kFamilies) {
    known.push_back(family.architecture);
    if (architecture.empty() ? family.model_type != model_type : family.architecture != architecture) continue;
    if (!model_type.empty() && family.model_type != model_type) {
      keys.fail(fmt::format("architectures says {} but model_type says {}", architecture, printable(model_type)));
    }
    return family;
  }
  keys.fail(fmt::format("the architecture {} (architectures, model_type) cannot be run",
                        printable(architecture.empty() ? model_type : architecture)),
            fmt::format("known are {}", fmt::join(known, ", ")));
}

void check_quantisation(Keys& keys) {
  const json* found = keys.value("quantization_config");
  if (found == nullptr) return;
  static constexpr std::array<std::string_view, 7> kKnown = {
      "gptq", "awq", "bitsandbytes", "fp8", "fbgemm_fp8", "compressed-tensors", "mxfp4"};
  const std::string method =
      found->is_object() && found->contains("quant_method") ? (*found)["quant_method"].dump() : "absent";
  const bool known = std::any_of(kKnown.begin(), kKnown.end(),
                                 [&](std::string_view name) { return method == fmt::format("\"{}\"", name); });
  keys.fail(fmt::format("quantization_config.quant_method is {}: {}", printable(method),
                        known ? "recognised, but it cannot be run yet" : "not a known method"),
            fmt::format("use an unquantised checkpoint or GGUF (recognised: {})", fmt::join(kKnown, ", ")));
}

RopeConfig read_rope(Keys& keys, std::vector<std::string>& ignored) {
  RopeConfig rope;
  rope.theta = keys.number("rope_theta").value_or(rope.theta);
  const std::optional<int64_t> outer_original = keys.whole_number("original_max_position_embeddings");
  const auto check_partial = [](Keys& owner) {
    if (owner.number("partial_rotary_factor").value_or(1.0) != 1.0) {
      owner.refuse("partial_rotary_factor", "only whole heads are rotated here");
    }
  };
  check_partial(keys);
  const json* scaling = keys.value("rope_scaling");
  const json* parameters = keys.value("rope_parameters");
  const std::string key = scaling != nullptr ? "rope_scaling" : "rope_parameters";
  const json* chosen = scaling != nullptr ? scaling : parameters;
  if (chosen == nullptr) return rope;
  if (!chosen->is_object()) keys.refuse(key, "must be an object or null");
  Keys inner(*chosen, keys.where(), key + ".");
  for (const std::string_view nested : {"full_attention", "sliding_attention"}) {
    if (inner.value(nested) != nullptr) inner.refuse(nested, "rotary settings by layer type cannot be run");
  }
  rope.theta = inner.number("rope_theta").value_or(rope.theta);
  check_partial(inner);
  const std::optional<std::string> new_name = inner.text("rope_type");
  const std::optional<std::string> old_name = inner.text("type");
  const std::string_view type_key = new_name ? "rope_type" : "type";
  const std::string type = new_name ? *new_name : old_name.value_or("default");
  const auto factor = [&](std::string_view name) {
    const std::optional<double> found = inner.number(name);
    if (!found) keys.fail(fmt::format("{}.{} is missing: {} needs it", key, name, type));
    return *found;
  };
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
    rope.factor = factor("factor");
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
    rope.factor = factor("factor");
    rope.low_freq_factor = factor("low_freq_factor");
    rope.high_freq_factor = factor("high_freq_factor");
    const std::optional<int64_t> original = inner.whole_number("original_max_position_embeddings");
    if (!outer_original && !original) {
      keys.fail(fmt::format("{}.original_max_position_embeddings is missing: llama3 needs it", key));
    }
    rope.original_positions = outer_original ? *outer_original : *original;
  } else if (type != "default") {
    inner.refuse(type_key, "rotary types that can be run are default, linear, llama3");
  } else if (!new_name && !old_name && inner.present("factor")) {
    keys.fail(fmt::format("{} has a factor but no rope_type", key));
  }
  inner.append_unread(ignored);
  return rope;
}

/// Keys by which a family leaves plain causal attention.
void check_attention(Keys& keys, const Family& family) {
  if (family.model_type == "mistral") {
    if (!keys.present("sliding_window")) {
      keys.fail("sliding_window is absent, which means 4096 for this family: sliding windows cannot be run",
                "use a checkpoint with \"sliding_window\": null");
    }
    if (keys.value("sliding_window") != nullptr) keys.refuse("sliding_window", "sliding windows cannot be run");
  }
  if (family.model_type == "qwen2") {
    if (keys.flag("use_sliding_window", false)) keys.refuse("use_sliding_window", "sliding windows cannot be run");
    keys.value("sliding_window");  // read only together with use_sliding_window
    keys.value("max_window_layers");
    if (const json* types = keys.value("layer_types"); types != nullptr) {
      const bool full = types->is_array() && std::all_of(types->begin(), types->end(),
                                                         [](const json& type) { return type == "full_attention"; });
      if (!full) keys.refuse("layer_types", "only full_attention can be run");
    }
  }
  const std::string activation = keys.text("hidden_act").value_or("silu");
  if (activation != "silu" && activation != "swish")
    keys.refuse("hidden_act", "the activation that can be run is silu");
}

void read_special_tokens(ModelConfig& config, Keys& keys, const Family& family) {
  const std::vector<int32_t> bos = keys.ids("bos_token_id");
  if (bos.size() > 1) keys.refuse("bos_token_id", "must be one token id");
  if (!bos.empty()) config.bos_id = bos.front();
  config.eos_ids = keys.ids("eos_token_id");
  const auto fits = [&](std::optional<int32_t> id) { return id && *id < config.vocab; };
  if (!keys.present("bos_token_id") && fits(family.bos)) config.bos_id = family.bos;
  if (!keys.present("eos_token_id") && fits(family.eos)) config.eos_ids.push_back(*family.eos);
}

void add_generation_stops(ModelConfig& config, const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const json root = parse_json(read_text_file(path.string(), kConfigLimit), path.string());
  if (!root.is_object()) throw UserError("not a JSON object", path.string(), "correct or remove the file");
  Keys keys(root, path.string());
  for (const int32_t id : keys.ids("eos_token_id")) {
    if (id >= config.vocab) keys.refuse("eos_token_id", fmt::format("the vocabulary has {} entries", config.vocab));
    config.eos_ids.push_back(id);
  }
}

}  // namespace

ModelConfig read_config_json(const std::string& path) {
  const json root = parse_json(read_text_file(path, kConfigLimit), path);
  if (!root.is_object()) throw UserError("not a JSON object", path, "use a model's config.json");
  Keys keys(root, path);
  const Family& family = family_of(keys);
  check_quantisation(keys);

  ModelConfig config;
  config.architecture = family.model_type;
  config.hidden = keys.count("hidden_size", family.hidden, 1 << 20);
  config.ffn = keys.count("intermediate_size", family.ffn, 1 << 22);
  config.layers = keys.count("num_hidden_layers", family.layers, 4096);
  config.layers_in_file = config.layers;
  config.query_heads = keys.count("num_attention_heads", family.heads, 1 << 14);
  const bool kv_by_family = !keys.present("num_key_value_heads") && family.kv_heads > 0;
  config.kv_heads = keys.count("num_key_value_heads", kv_by_family ? family.kv_heads : config.query_heads, 1 << 14);
  if (!keys.whole_number("head_dim") && config.hidden % config.query_heads != 0) {
    keys.fail(fmt::format("hidden_size {} is not a multiple of num_attention_heads {} and head_dim is absent",
                          config.hidden, config.query_heads));
  }
  config.head_dim = keys.count("head_dim", std::max<int64_t>(1, config.hidden / config.query_heads), 1 << 12);
  config.vocab = keys.count("vocab_size", family.vocab, 1 << 24);
  config.max_positions = keys.count("max_position_embeddings", family.max_positions, int64_t{1} << 31);
  config.norm_epsilon = static_cast<float>(keys.number("rms_norm_eps").value_or(1e-6));
  config.tied_embeddings = keys.flag("tie_word_embeddings", false);
  if (family.model_type == "llama") {
    config.attention_in_bias = config.attention_out_bias = keys.flag("attention_bias", false);
    config.mlp_bias = keys.flag("mlp_bias", false);
  } else if (family.model_type == "qwen2") {
    config.attention_in_bias = true;
  }
  check_attention(keys, family);
  config.rope = read_rope(keys, config.ignored_keys);
  read_special_tokens(config, keys, family);
  for (const std::string_view label : {"torch_dtype", "dtype"}) keys.value(label);  // the tensors' own headers decide
  config.quantisation = "none";
  keys.append_unread(config.ignored_keys);
  add_generation_stops(config, std::filesystem::path(path).parent_path() / "generation_config.json");
  std::sort(config.eos_ids.begin(), config.eos_ids.end());
  config.eos_ids.erase(std::unique(config.eos_ids.begin(), config.eos_ids.end()), config.eos_ids.end());
  config.validate(path);
  return config;
}

}  // namespace shardscope::runtime
