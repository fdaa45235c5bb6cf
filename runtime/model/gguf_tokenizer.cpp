#include <array>
#include <string_view>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/gguf_model.hpp"
#include "runtime/model/json_file.hpp"

namespace shardscope::runtime {
namespace {

// Values of tokenizer.ggml.token_type. Source: llama.h (LLAMA_TOKEN_TYPE_*).
constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;

struct PreTokenizer {
  std::string_view name;  // tokenizer.ggml.pre
  Splitter splitter;
  bool ignore_merges;
  bool add_bos;  // where tokenizer.ggml.add_bos_token is absent
};

constexpr std::array<PreTokenizer, 6> kPreTokenizers = {{
    {"gpt-2", Splitter::kGpt2, false, false},
    {"smollm", Splitter::kSmolLm, false, false},
    {"llama-bpe", Splitter::kLlama3, true, true},
    {"llama3", Splitter::kLlama3, true, true},
    {"llama-v3", Splitter::kLlama3, true, true},
    {"qwen2", Splitter::kQwen2, false, false},
}};

[[noreturn]] void fail(const GgufFile& file, const std::string& what) {
  throw UserError(what, file.path(), "convert the file again");
}

std::vector<std::pair<std::string, std::string>> read_merges(const GgufFile& file) {
  std::vector<std::pair<std::string, std::string>> merges;
  const std::optional<std::vector<std::string_view>> texts = file.texts("tokenizer.ggml.merges");
  if (!texts) fail(file, "tokenizer.ggml.merges is missing");
  merges.reserve(texts->size());
  for (const std::string_view text : *texts) {
    const size_t blank = text.find(' ', 1);
    if (blank == std::string_view::npos || blank + 1 == text.size()) {
      fail(file, fmt::format("tokenizer.ggml.merges: \"{}\" is not a pair", printable(text)));
    }
    merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return merges;
}

}  // namespace

std::optional<TokenizerSpec> gguf_tokenizer(const GgufFile& file, const ModelConfig& config,
                                            std::string& missing_reason) {
  const std::optional<std::string_view> model = file.text("tokenizer.ggml.model");
  if (!model) {
    missing_reason = "the file has no tokenizer (tokenizer.ggml.model)";
    return {};
  }
  const std::string_view pre = file.text("tokenizer.ggml.pre").value_or("absent");
  const PreTokenizer* found = nullptr;
  for (const PreTokenizer& known : kPreTokenizers) {
    if (known.name == pre) found = &known;
  }
  if (*model != "gpt2" || found == nullptr) {
    missing_reason = fmt::format(
        "tokenizer.ggml.model is {} and tokenizer.ggml.pre is {}: known is gpt2 with gpt-2, smollm, llama-bpe, qwen2",
        printable(*model), printable(pre));
    return {};
  }
  const std::optional<std::vector<std::string_view>> tokens = file.texts("tokenizer.ggml.tokens");
  if (!tokens) fail(file, "tokenizer.ggml.tokens is missing");
  if (static_cast<int64_t>(tokens->size()) > config.vocab) {
    fail(file, fmt::format("{} tokens in tokenizer.ggml.tokens but {} rows in token_embd.weight", tokens->size(),
                           config.vocab));
  }
  const std::optional<std::vector<int64_t>> types = file.whole_numbers("tokenizer.ggml.token_type");
  if (types && types->size() != tokens->size()) {
    fail(file, fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", types->size(), tokens->size()));
  }
  TokenizerSpec spec;
  spec.source = file.path();
  spec.splitter = found->splitter;
  spec.ignore_merges = found->ignore_merges;
  spec.nfc = found->splitter == Splitter::kQwen2;  // as the family's tokenizer.json has it
  spec.merges = read_merges(file);
  spec.tokens.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    const int64_t type = types ? (*types)[i] : 1;
    if (type == kControl || type == kUserDefined) {
      AddedToken added;
      added.id = static_cast<int32_t>(i);
      added.content = (*tokens)[i];
      added.special = type == kControl;
      if (!added.content.empty()) spec.added.push_back(std::move(added));
    }
    spec.tokens.emplace_back((*tokens)[i]);
  }
  spec.bos_id = config.bos_id;
  if (const std::optional<int64_t> eos = file.whole_number("tokenizer.ggml.eos_token_id")) {
    for (const int32_t id : config.eos_ids) {
      if (id == *eos) spec.eos_id = id;
    }
  }
  // No unk_id: files name a control token there (SmolLM2: <|endoftext|>), and a byte that the vocabulary lacks must not
  // become one. Such a byte is an error that names it.
  spec.add_bos = file.flag("tokenizer.ggml.add_bos_token").value_or(found->add_bos) && spec.bos_id.has_value();
  spec.add_prefix_space = file.flag("tokenizer.ggml.add_space_prefix").value_or(false);
  spec.chat_template = file.text("tokenizer.chat_template").value_or("");
  return spec;
}

}  // namespace shardscope::runtime
