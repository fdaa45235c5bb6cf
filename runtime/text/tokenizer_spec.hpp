// What a byte-level BPE tokenizer is made of, as values, whichever file it came from (GGUF metadata, tokenizer.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace shardscope::runtime {

/// A token that is cut out of a text before anything else looks at it.
struct AddedToken {
  int32_t id = 0;
  std::string content;   // UTF-8, not in the printable byte map
  bool special = false;  // control tokens: plain text unless special parsing is asked for; not printed
  bool lstrip = false;   // eats blanks on its left
  bool rstrip = false;
  bool single_word = false;  // not where a letter, mark or digit stands next to it
  bool normalized = false;   // looked for after the normaliser has run, and after all tokens that are not
};

/// How a text is split into pieces before merging. Each has its regular expression(s) in splitter.cpp.
enum class Splitter : uint8_t { kGpt2, kSmolLm, kLlama3, kQwen2, kPatterns };

struct TokenizerSpec {
  std::string source;               // file, for errors
  std::vector<std::string> tokens;  // by id, in the printable byte map ("Ġthe"); may hold empty strings (holes)
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::vector<AddedToken> added;
  Splitter splitter = Splitter::kGpt2;
  std::vector<std::string> patterns;  // kPatterns: applied one after another to the pieces of the one before
  bool nfc = false;                   // the text is brought to Unicode's form NFC before it is split
  bool ignore_merges = false;         // a whole piece that is a token is taken as it is
  bool fuse_unk = false;              // neighbouring unknown bytes of a piece are one unk token
  bool add_prefix_space = false;      // a text (between added tokens) without a blank in front gets one
  bool add_bos = false;               // the post-processor or metadata says so
  std::optional<int32_t> bos_id;
  std::optional<int32_t> eos_id;
  std::optional<int32_t> unk_id;
  std::string chat_template;  // as in the file; empty if none
};

}  // namespace shardscope::runtime
