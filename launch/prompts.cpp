#include "launch/prompts.hpp"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"

namespace shardscope::launch {
namespace {

/// Ids in the order given; not a LIST: repeats and order matter.
std::vector<int32_t> parse_ids(const std::string& text, int64_t vocab) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int32_t id = 0;
    const auto [stop, code] = std::from_chars(at, end, id);
    if (code != std::errc() || (stop != end && *stop != ',') || (stop != end && stop + 1 == end)) {
      throw UserError(fmt::format("'{}' is not a list of token ids", text), "--prompt-ids", "write 1,2,3");
    }
    if (id < 0 || id >= vocab) {
      throw UserError(fmt::format("token id {} is outside the vocabulary", id), "--prompt-ids",
                      fmt::format("use 0 to {}", vocab - 1));
    }
    ids.push_back(id);
    at = stop == end ? end : stop + 1;
  }
  return ids;
}

Prompt encoded(const std::string& text, const PromptOptions& options, const runtime::Tokenizer* tokenizer,
               const runtime::ModelConfig& config) {
  if (tokenizer == nullptr) {
    throw UserError("this model has no tokenizer", "--prompt", "give token ids with --prompt-ids");
  }
  const auto specials =
      options.parse_specials ? runtime::Tokenizer::Specials::kParse : runtime::Tokenizer::Specials::kPlainText;
  Prompt prompt{.text = text, .ids = tokenizer->encode(text, specials)};
  const std::optional<int32_t> bos = tokenizer->spec().bos_id ? tokenizer->spec().bos_id : config.bos_id;
  const bool has_bos = bos && !prompt.ids.empty() && prompt.ids.front() == *bos;  // typed, with --special
  if (bos && !has_bos && (tokenizer->spec().add_bos || prompt.ids.empty())) prompt.ids.insert(prompt.ids.begin(), *bos);
  if (prompt.ids.empty()) {
    throw UserError("the prompt is empty and the model has no beginning-of-text token", "--prompt", "write a prompt");
  }
  return prompt;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  constexpr size_t kMostBytes = size_t{64} << 20U;
  const bool standard_input = path == "-";
  const auto close = [](FILE* file) {
    if (file != stdin) std::fclose(file);
  };
  const std::unique_ptr<FILE, decltype(close)> file(standard_input ? stdin : std::fopen(path.c_str(), "rb"), close);
  if (!file) {
    throw UserError(fmt::format("cannot read the file: {}", std::strerror(errno)), path, "name a readable file");
  }
  std::string text;
  std::vector<char> chunk(1 << 16);
  while (const size_t count = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    text.append(chunk.data(), count);
    if (text.size() > kMostBytes) throw UserError("the text is over 64 MiB", path, "use a shorter one");
  }
  if (std::ferror(file.get()) != 0) {  // a folder opens and then cannot be read
    throw UserError(fmt::format("cannot read the file: {}", std::strerror(errno)), path, "name a readable file");
  }
  return text;
}

std::vector<Prompt> encode_prompts(const PromptOptions& options, const runtime::Tokenizer* tokenizer,
                                   const runtime::ModelConfig& config) {
  std::vector<Prompt> prompts;
  for (const std::string& text : options.texts) prompts.push_back(encoded(text, options, tokenizer, config));
  if (options.file) prompts.push_back(encoded(read_text_file(*options.file), options, tokenizer, config));
  for (const std::string& list : options.id_lists) {
    prompts.push_back({.text = std::nullopt, .ids = parse_ids(list, config.vocab)});
    if (prompts.back().ids.empty()) throw UserError("the list of token ids is empty", "--prompt-ids", "write 1,2,3");
  }
  if (prompts.empty()) {
    throw UserError("no prompt given", "shardscope generate",
                    "use --prompt TEXT, --prompt-file FILE or --prompt-ids 1,2,3");
  }
  return prompts;
}

std::vector<std::vector<int32_t>> share_ids(Session& session, const std::vector<std::vector<int32_t>>& ids) {
  const std::string text = session.speaks() ? nlohmann::json(ids).dump() : "";
  return nlohmann::json::parse(session.world.broadcast_text(text, 0, "prompts"))
      .get<std::vector<std::vector<int32_t>>>();
}

}  // namespace shardscope::launch
