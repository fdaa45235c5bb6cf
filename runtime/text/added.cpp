#include "runtime/text/added.hpp"

#include <utf8proc.h>

#include <algorithm>

#include "runtime/text/utf8.hpp"

namespace shardscope::runtime {
namespace {

// The character that ends right before byte `end`.
Utf8Char read_utf8_before(std::string_view text, size_t end) {
  for (size_t length = 1; length <= 4 && length <= end; ++length) {
    const Utf8Char found = read_utf8(text.substr(0, end), end - length);
    if (found.length == length) return found;
  }
  return {};
}

// The \w of Unicode's regular expressions (UTS 18, annex C), which Hugging Face's library uses here.
bool is_word(const Utf8Char& character) {
  if (character.length == 0) return false;
  const uint32_t c = character.code_point;
  const bool joiner = c == 0x200C || c == 0x200D;
  const bool letter_in_circle_or_square = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                                          (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  if (joiner || letter_in_circle_or_square) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // a C enum with many more members
      return false;
  }
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word(read_utf8_before(text, begin));
  const bool word_after = end < text.size() && is_word(read_utf8(text, end));
  return !word_before && !word_after;
}

size_t skip_blanks_back(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const Utf8Char before = read_utf8_before(text, end);
    if (before.length == 0 || before.length > end - limit || !is_blank(before.code_point)) break;
    end -= before.length;
  }
  return end;
}

size_t skip_blanks(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Char next = read_utf8(text, begin);
    if (next.length == 0 || !is_blank(next.code_point)) break;
    begin += next.length;
  }
  return begin;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), begins_(256, false) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  for (const AddedToken& token : tokens_) begins_[static_cast<uint8_t>(token.content[0])] = true;
}

// Walks down the sorted contents byte by byte: those that agree with the text so far are one range.
const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at) const {
  if (!begins_[static_cast<uint8_t>(text[at])]) return nullptr;
  const AddedToken* longest = nullptr;
  auto begin = tokens_.begin();
  auto end = tokens_.end();
  for (size_t depth = 0; at + depth < text.size(); ++depth) {
    const auto byte_at = [depth](const AddedToken& token) {
      return token.content.size() > depth ? static_cast<int>(static_cast<uint8_t>(token.content[depth])) : -1;
    };
    const int byte = static_cast<uint8_t>(text[at + depth]);
    begin = std::partition_point(begin, end, [&](const AddedToken& token) { return byte_at(token) < byte; });
    end = std::partition_point(begin, end, [&](const AddedToken& token) { return byte_at(token) == byte; });
    if (begin == end) break;
    if (begin->content.size() == depth + 1) longest = &*begin;
  }
  return longest;
}

std::vector<Segment> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<Segment> segments;
  size_t done = 0;
  const auto put_plain = [&](size_t end) {
    if (end > done) segments.push_back({.text = text.substr(done, end - done), .token = std::nullopt});
    done = end;
  };
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    const size_t end = at + token->content.size();
    if (token->single_word && !stands_alone(text, at, end)) {
      at = end;
      continue;
    }
    put_plain(token->lstrip ? skip_blanks_back(text, at, done) : at);
    at = token->rstrip ? skip_blanks(text, end) : end;
    segments.push_back({.text = text.substr(done, at - done), .token = token->id});
    done = at;
  }
  put_plain(text.size());
  return segments;
}

}  // namespace shardscope::runtime
