// Finds added tokens in a text: the leftmost first, of those the longest. Knows nothing of merging.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer_spec.hpp"

namespace shardscope::runtime {

/// A stretch of a text: an added token (with the blanks that it eats), or what lies between two of them.
struct Segment {
  std::string_view text;
  std::optional<int32_t> token;
};

class AddedTokenFinder {
 public:
  /// Tokens without content are never found.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  /// The segments of `text`, in order and none empty; together they are the text.
  std::vector<Segment> cut(std::string_view text) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  std::vector<bool> begins_;        // by first byte: whether a token begins so
};

}  // namespace shardscope::runtime
