// From what a user typed as prompts to token ids on every rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launch/session.hpp"
#include "runtime/model/config.hpp"
#include "runtime/text/tokenizer.hpp"

namespace shardscope::launch {

struct Prompt {
  std::string source;               // the option that gave it, for errors
  std::optional<std::string> text;  // nullopt: given as ids
  std::vector<int32_t> ids;
};

struct PromptOptions {
  std::vector<std::string> texts;     // --prompt
  std::optional<std::string> file;    // --prompt-file, "-": standard input of rank 0
  std::vector<std::string> id_lists;  // --prompt-ids
  bool parse_specials = false;        // --special

  std::function<void()> alive = [] {};  // called while standard input is waited for

  bool empty() const { return texts.empty() && !file && id_lists.empty(); }
};

/// On rank 0: reads and encodes the prompts, each with the model's BOS where its tokenizer adds one; an empty prompt
/// becomes BOS alone, or an error where the model has none. Throws UserError.
std::vector<Prompt> encode_prompts(const PromptOptions& options, const runtime::Tokenizer* tokenizer,
                                   const runtime::ModelConfig& config);

/// Rank 0's id lists on every rank. Collective.
std::vector<std::vector<int32_t>> share_ids(Session& session, const std::vector<std::vector<int32_t>>& ids);

/// How much of a text is read, and what helps where there is more.
struct TextLimit {
  size_t bytes = size_t{64} << 20U;
  std::string beyond = "the text is over 64 MiB";
  std::string remedy = "use a shorter one";
};

/// A whole file, or standard input for "-". `alive` is called while standard input is waited for. Throws UserError.
std::string read_text_file(const std::string& path, const std::function<void()>& alive, const TextLimit& limit = {});

}  // namespace shardscope::launch
