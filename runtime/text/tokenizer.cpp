#include "runtime/text/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "kernels/base/error.hpp"
#include "runtime/text/added.hpp"
#include "runtime/text/byte_map.hpp"
#include "runtime/text/merge.hpp"
#include "runtime/text/nfc.hpp"
#include "runtime/text/splitter.hpp"

namespace shardscope::runtime {
namespace {

constexpr int32_t kNoToken = -1;
constexpr const char* kDamaged = "the file is damaged or was not converted well: fetch it again";

using TokenIds = std::unordered_map<std::string_view, int32_t>;

// A token that two ids share keeps the lower one.
TokenIds ids_by_text(const std::vector<std::string>& tokens) {
  TokenIds ids;
  ids.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) ids.emplace(tokens[id], static_cast<int32_t>(id));
  }
  return ids;
}

std::array<int32_t, 256> byte_tokens(const TokenIds& ids) {
  std::array<int32_t, 256> tokens{};
  for (size_t byte = 0; byte < tokens.size(); ++byte) {
    const auto found = ids.find(printable_byte(static_cast<uint8_t>(byte)));
    tokens[byte] = found == ids.end() ? kNoToken : found->second;
  }
  return tokens;
}

MergeTable merge_table(const TokenizerSpec& spec, const TokenIds& ids) {
  const auto id_of = [&](const std::string& token, size_t rank) {
    const auto found = ids.find(token);
    if (found != ids.end()) return found->second;
    throw UserError(fmt::format("merge {} needs the token \"{}\", which the vocabulary does not have", rank, token),
                    spec.source, kDamaged);
  };
  MergeTable table;
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    table.set(id_of(left, rank), id_of(right, rank),
              {.rank = static_cast<int32_t>(rank), .token = id_of(left + right, rank)});
  }
  return table;
}

std::vector<AddedToken> select_added(const TokenizerSpec& spec, bool normalized, bool with_specials) {
  std::vector<AddedToken> selected;
  for (AddedToken token : spec.added) {
    if (token.normalized != normalized || (token.special && !with_specials)) continue;
    if (normalized && spec.nfc) token.content = to_nfc(token.content);
    selected.push_back(std::move(token));
  }
  return selected;
}

// The finders of one way to parse: over the text as it is, then over the normalised rest.
struct AddedTokens {
  AddedTokens(const TokenizerSpec& spec, bool with_specials)
      : raw(select_added(spec, false, with_specials)), normalized(select_added(spec, true, with_specials)) {}
  AddedTokenFinder raw;
  AddedTokenFinder normalized;
};

TokenizerSpec checked(TokenizerSpec spec) {
  // About ten times the largest vocabulary in use (2025: 262144); bounds what a damaged file can allocate.
  constexpr int64_t kMaxTokens = 1 << 22;
  if (static_cast<int64_t>(spec.tokens.size()) > kMaxTokens || static_cast<int64_t>(spec.merges.size()) > kMaxTokens) {
    throw UserError(fmt::format("{} tokens and {} merges are more than the {} that are read", spec.tokens.size(),
                                spec.merges.size(), kMaxTokens),
                    spec.source, kDamaged);
  }
  std::unordered_map<std::string_view, int32_t> contents;
  for (const AddedToken& token : spec.added) {
    if (token.id < 0 || token.id >= kMaxTokens) {
      throw UserError(fmt::format("the added token \"{}\" has the id {}", token.content, token.id), spec.source,
                      kDamaged);
    }
    const auto [known, is_new] = contents.emplace(token.content, token.id);
    if (!is_new && known->second != token.id) {
      throw UserError(
          fmt::format("the added token \"{}\" has two ids, {} and {}", token.content, known->second, token.id),
          spec.source, kDamaged);
    }
  }
  return spec;
}

int64_t count_ids(const TokenizerSpec& spec) {
  auto count = static_cast<int64_t>(spec.tokens.size());
  for (const AddedToken& token : spec.added) count = std::max<int64_t>(count, token.id + 1);
  return count;
}

// An id that the file names must have a token.
void check_named_id(const TokenizerSpec& spec, const std::optional<int32_t>& id, int64_t count, const char* name) {
  if (!id || (*id >= 0 && *id < count)) return;
  throw UserError(fmt::format("the {} id {} is not among the {} tokens", name, *id, count), spec.source, kDamaged);
}

}  // namespace

struct Tokenizer::State {
  explicit State(TokenizerSpec given);

  void encode_plain(std::string_view text, PieceMerger& merger, std::vector<int32_t>& out) const;
  void encode_piece(std::string_view piece, PieceMerger& merger, std::vector<int32_t>& out) const;
  std::vector<int32_t> symbols_of(std::string_view piece) const;

  TokenizerSpec spec;
  std::vector<std::string> bytes;  // by id, as they are printed
  std::vector<bool> special;       // by id
  std::array<int32_t, 256> byte_token{};
  TokenIds whole_pieces;  // views into `bytes`; only with ignore_merges
  MergeTable merges;
  PieceSplitter splitter;
  AddedTokens added_with_specials;
  AddedTokens added_without_specials;
};

Tokenizer::State::State(TokenizerSpec given)
    : spec(checked(std::move(given))),
      bytes(count_ids(spec)),
      special(bytes.size(), false),
      splitter(spec.splitter == Splitter::kPatterns ? spec.patterns : splitter_patterns(spec.splitter), spec.source),
      added_with_specials(spec, true),
      added_without_specials(spec, false) {
  const auto count = static_cast<int64_t>(bytes.size());
  check_named_id(spec, spec.bos_id, count, "begin-of-text");
  check_named_id(spec, spec.eos_id, count, "end-of-text");
  check_named_id(spec, spec.unk_id, count, "unknown-token");

  const TokenIds ids = ids_by_text(spec.tokens);
  byte_token = byte_tokens(ids);
  merges = merge_table(spec, ids);

  std::vector<bool> is_added(bytes.size(), false);
  for (const AddedToken& token : spec.added) {
    is_added[token.id] = true;
    special[token.id] = special[token.id] || token.special;
    bytes[token.id] = special[token.id] ? std::string() : token.content;
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (is_added[id]) continue;
    // Tokens outside the byte map stand for their own text.
    auto mapped = bytes_of_printable(spec.tokens[id]);
    if (mapped && spec.ignore_merges && !mapped->empty()) {
      bytes[id] = std::move(*mapped);
      whole_pieces.emplace(bytes[id], static_cast<int32_t>(id));
    } else {
      bytes[id] = mapped ? std::move(*mapped) : spec.tokens[id];
    }
  }
}

std::vector<int32_t> Tokenizer::State::symbols_of(std::string_view piece) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  bool after_unknown = false;
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    const bool unknown = byte_token[byte] == kNoToken;
    if (unknown && !spec.unk_id) {
      throw UserError(fmt::format("the byte 0x{:02X} of the text has no token", byte), spec.source,
                      "leave it out of the text or use a tokenizer with all 256 byte tokens");
    }
    if (!unknown || !after_unknown || !spec.fuse_unk) symbols.push_back(unknown ? *spec.unk_id : byte_token[byte]);
    after_unknown = unknown;
  }
  return symbols;
}

void Tokenizer::State::encode_piece(std::string_view piece, PieceMerger& merger, std::vector<int32_t>& out) const {
  if (spec.ignore_merges) {
    const auto whole = whole_pieces.find(piece);
    if (whole != whole_pieces.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  merger.append(symbols_of(piece), out);
}

void Tokenizer::State::encode_plain(std::string_view text, PieceMerger& merger, std::vector<int32_t>& out) const {
  std::string prefixed;
  if (spec.add_prefix_space && !text.starts_with(' ')) {
    prefixed.reserve(text.size() + 1);
    prefixed.append(1, ' ').append(text);
    text = prefixed;
  }
  for (const std::string_view piece : splitter.split(text)) encode_piece(piece, merger, out);
}

Tokenizer::Tokenizer(TokenizerSpec spec) : state_(std::make_unique<State>(std::move(spec))) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, Specials specials) const {
  const AddedTokens& added =
      specials == Specials::kParse ? state_->added_with_specials : state_->added_without_specials;
  PieceMerger merger(state_->merges);
  std::vector<int32_t> ids;
  const auto encode_rest = [&](std::string_view rest) {
    for (const Segment& segment : added.normalized.cut(rest)) {
      if (segment.token) {
        ids.push_back(*segment.token);
      } else {
        state_->encode_plain(segment.text, merger, ids);
      }
    }
  };
  for (const Segment& segment : added.raw.cut(text)) {
    if (segment.token) {
      ids.push_back(*segment.token);
    } else if (state_->spec.nfc) {
      encode_rest(to_nfc(segment.text));
    } else {
      encode_rest(segment.text);
    }
  }
  return ids;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return state_->bytes[id];
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += token_bytes(id);
  return text;
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && id < size() && state_->special[id];
}

int64_t Tokenizer::size() const {
  return static_cast<int64_t>(state_->bytes.size());
}

const TokenizerSpec& Tokenizer::spec() const {
  return state_->spec;
}

}  // namespace shardscope::runtime
