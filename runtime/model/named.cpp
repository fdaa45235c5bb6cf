#include "runtime/model/named.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/model/open_model.hpp"

namespace shardscope::runtime {
namespace {

/// Whether our layers are this model's, or only its dimensions are known here.
enum class Layers : uint8_t { kRun, kPlanned, kPlannedWithoutGate };

struct Named {
  std::string_view name;
  std::string_view family;
  int64_t layers;
  int64_t hidden;
  int64_t query_heads;
  int64_t kv_heads;
  int64_t ffn;
  int64_t vocab;
  int64_t max_positions;
  float norm_epsilon;
  double rope_theta;
  double llama3_factor;  // 0: no scaling
  bool tied;
  bool attention_in_bias;
  int32_t bos;
  int32_t eos;
  Layers in_layers = Layers::kRun;
};

// Sources: the config.json files of meta-llama/Llama-2-*-hf, Meta-Llama-3-{8B,70B}, Llama-3.1-405B,
// mistralai/Mistral-7B-v0.3, Qwen/Qwen2.5-{7B,72B}, Qwen/Qwen3-8B, mosaicml/mpt-{7b,30b} (their layers run later: ALiBi
// and LayerNorm, q/k norm), HuggingFaceTB/SmolLM2-135M-Instruct. `tiny` is our own.
constexpr std::array<Named, 14> kNamed = {{
    {"llama2-7b", "llama", 32, 4096, 32, 32, 11008, 32000, 4096, 1e-5F, 1e4, 0, false, false, 1, 2},
    {"llama2-13b", "llama", 40, 5120, 40, 40, 13824, 32000, 4096, 1e-5F, 1e4, 0, false, false, 1, 2},
    {"llama2-70b", "llama", 80, 8192, 64, 8, 28672, 32000, 4096, 1e-5F, 1e4, 0, false, false, 1, 2},
    {"llama3-8b", "llama", 32, 4096, 32, 8, 14336, 128256, 8192, 1e-5F, 5e5, 0, false, false, 128000, 128001},
    {"llama3-70b", "llama", 80, 8192, 64, 8, 28672, 128256, 8192, 1e-5F, 5e5, 0, false, false, 128000, 128001},
    {"llama3.1-405b", "llama", 126, 16384, 128, 8, 53248, 128256, 131072, 1e-5F, 5e5, 8, false, false, 128000, 128001},
    {"mistral-7b", "mistral", 32, 4096, 32, 8, 14336, 32768, 32768, 1e-5F, 1e6, 0, false, false, 1, 2},
    {"qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 18944, 152064, 131072, 1e-6F, 1e6, 0, false, true, 151643, 151643},
    {"qwen2.5-72b", "qwen2", 80, 8192, 64, 8, 29568, 152064, 131072, 1e-6F, 1e6, 0, false, true, 151643, 151643},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 12288, 151936, 40960, 1e-6F, 1e6, 0, false, false, 151643, 151645,
     Layers::kPlanned},
    {"mpt-7b", "mpt", 32, 4096, 32, 32, 16384, 50432, 2048, 1e-5F, 1e4, 0, true, false, 0, 0,
     Layers::kPlannedWithoutGate},
    {"mpt-30b", "mpt", 48, 7168, 64, 64, 28672, 50432, 8192, 1e-5F, 1e4, 0, true, false, 0, 0,
     Layers::kPlannedWithoutGate},
    {"smollm2-135m", "llama", 30, 576, 9, 3, 1536, 49152, 8192, 1e-5F, 1e5, 0, true, false, 1, 2},
    {"tiny", "llama", 2, 128, 8, 2, 352, 512, 2048, 1e-5F, 1e4, 0, false, false, 0, 1},
}};

}  // namespace

std::optional<ModelConfig> named_configuration(std::string_view name) {
  for (const Named& named : kNamed) {
    if (named.name != name) continue;
    ModelConfig config;
    config.name = named.name;
    config.architecture = named.family;
    config.layers = config.layers_in_file = named.layers;
    config.hidden = named.hidden;
    config.query_heads = named.query_heads;
    config.kv_heads = named.kv_heads;
    config.head_dim = named.hidden / named.query_heads;
    config.ffn = named.ffn;
    config.vocab = named.vocab;
    config.max_positions = named.max_positions;
    config.norm_epsilon = named.norm_epsilon;
    config.rope.theta = named.rope_theta;
    if (named.llama3_factor > 0) {
      config.rope.scaling = RopeConfig::Scaling::kLlama3;
      config.rope.factor = named.llama3_factor;
      config.rope.original_positions = 8192;
    }
    config.tied_embeddings = named.tied;
    config.attention_in_bias = named.attention_in_bias;
    config.gated_mlp = named.in_layers != Layers::kPlannedWithoutGate;
    config.bos_id = named.bos;
    config.eos_ids = {named.eos};
    config.quantisation = "none";
    config.validate(config.name);
    return config;
  }
  return {};
}

bool named_configuration_runs(std::string_view name) {
  return std::any_of(kNamed.begin(), kNamed.end(),
                     [&](const Named& named) { return named.name == name && named.in_layers == Layers::kRun; });
}

std::vector<std::string> named_configurations() {
  std::vector<std::string> names;
  names.reserve(kNamed.size());
  for (const Named& named : kNamed) names.emplace_back(named.name);
  return names;
}

}  // namespace shardscope::runtime
