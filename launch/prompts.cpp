#include "launch/prompts.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

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

Prompt encoded(const std::string& source, const std::string& text, const PromptOptions& options,
               const runtime::Tokenizer* tokenizer, const runtime::ModelConfig& config) {
  if (tokenizer == nullptr) {
    throw UserError("this model has no tokenizer", source,
                    "use a model with one, or token ids (generate --prompt-ids)");
  }
  const auto specials =
      options.parse_specials ? runtime::Tokenizer::Specials::kParse : runtime::Tokenizer::Specials::kPlainText;
  Prompt prompt{.source = source, .text = text, .ids = tokenizer->encode(text, specials)};
  const std::optional<int32_t> bos = tokenizer->spec().bos_id ? tokenizer->spec().bos_id : config.bos_id;
  const bool has_bos = bos && !prompt.ids.empty() && prompt.ids.front() == *bos;  // typed, with --special
  if (bos && !has_bos && (tokenizer->spec().add_bos || prompt.ids.empty())) prompt.ids.insert(prompt.ids.begin(), *bos);
  if (prompt.ids.empty()) {
    throw UserError("the prompt is empty and the model has no beginning-of-text token", source, "write a prompt");
  }
  return prompt;
}

struct Closer {
  int file;
  ~Closer() {
    if (file >= 0) close(file);
  }
};

}  // namespace

std::string read_text_file(const std::string& path, const std::function<void()>& alive, const TextLimit& limit) {
  const bool standard_input = path == "-";
  const int file = standard_input ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto fail = [&] {
    throw UserError(fmt::format("cannot read: {}", std::strerror(errno)), standard_input ? "standard input" : path,
                    "name a readable file");
  };
  if (file < 0) fail();
  const Closer closer{standard_input ? -1 : file};
  std::string text;
  std::vector<char> chunk(1 << 16);
  for (;;) {
    constexpr int kLook_ms = 200;
    pollfd ready{file, POLLIN, 0};
    if (standard_input && poll(&ready, 1, kLook_ms) == 0) {  // somebody types, or a pipe is slow
      alive();
      continue;
    }
    const ssize_t count = read(file, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    if (count == 0) return text;
    text.append(chunk.data(), static_cast<size_t>(count));
    if (text.size() > limit.bytes) throw UserError(limit.beyond, path, limit.remedy);
  }
}

std::vector<Prompt> encode_prompts(const PromptOptions& options, const runtime::Tokenizer* tokenizer,
                                   const runtime::ModelConfig& config) {
  std::vector<Prompt> prompts;
  for (const std::string& text : options.texts) {
    prompts.push_back(encoded("--prompt", text, options, tokenizer, config));
  }
  if (options.file) {
    const std::string text = read_text_file(*options.file, options.alive);
    prompts.push_back(encoded("--prompt-file " + *options.file, text, options, tokenizer, config));
  }
  for (const std::string& list : options.id_lists) {
    prompts.push_back({.source = "--prompt-ids", .text = std::nullopt, .ids = parse_ids(list, config.vocab)});
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
