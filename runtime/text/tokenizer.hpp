// Text to token ids and back: byte-level BPE. The parts: added.hpp cuts out added tokens, nfc.hpp normalises,
// splitter.hpp splits by PCRE2, merge.hpp merges, tokenizer_json.cpp reads the file, stream.cpp shows a growing text.
// Leaves chat templates and sampling to others.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer_spec.hpp"

namespace shardscope::runtime {

class Tokenizer {
 public:
  /// Checks the spec (every merge names tokens, ids in range) and throws UserError with spec.source otherwise.
  explicit Tokenizer(TokenizerSpec spec);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  enum class Specials : uint8_t { kPlainText, kParse };

  /// Token ids of a text (no BOS added). Special tokens typed in it are plain text unless `specials` is kParse; added
  /// tokens that are not special are always recognised. Bytes that are not UTF-8 are encoded as the bytes that they
  /// are; for the splitting each counts as a sign that is neither letter, digit nor blank. Where the vocabulary has
  /// all 256 byte tokens, decode(encode(text)) == text, but for NFC, prefix blanks and the blanks that an added token
  /// eats. A byte without a token is the unk token, or UserError where there is none. O(n log n) in the length of
  /// each piece. Safe to call from several threads at once.
  std::vector<int32_t> encode(std::string_view text, Specials specials = Specials::kPlainText) const;

  /// The bytes of one token; empty for special tokens and ids without a token. May be a part of a UTF-8 character.
  std::string_view token_bytes(int32_t id) const;
  std::string decode(std::span<const int32_t> ids) const;

  bool is_special(int32_t id) const;
  int64_t size() const;  // ids run from 0 to size() - 1
  const TokenizerSpec& spec() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Reads tokenizer.json (and tokenizer_config.json beside it, where present, for add_bos_token, bos, eos and chat
/// template). Throws UserError naming the file and the construct that is not understood (model type, pre-tokenizer,
/// normalizer), never guesses.
TokenizerSpec read_tokenizer_json(const std::string& folder);

/// The bytes that are safe to show while a text grows: whole UTF-8 characters only, and nothing that may still turn
/// out to be the beginning of a stop text.
class StreamDecoder {
 public:
  /// Throws UserError for an empty stop text.
  explicit StreamDecoder(std::vector<std::string> stop_texts);

  /// Adds bytes; returns those that may be shown now. After a stop text was met, `stopped` is true and the text ends
  /// right before it. Of several stop texts the one that is complete first wins, of those the longest: the text is
  /// the same however it is cut into pushes. Bytes that cannot be UTF-8 come out as they are.
  std::string push(std::string_view bytes);
  /// The rest, at the end of the text: bytes that never became a whole character come out as they are.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_texts_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace shardscope::runtime
