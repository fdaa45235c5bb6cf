// Splits a text into the pieces that are merged apart, by regular expressions (PCRE2 with UTF and UCP). The pieces are
// those of Hugging Face's tokenizers for every code point that PCRE2 knows (Debian's 10.42: Unicode 14); letters and
// digits assigned since, such as CJK extension H, count as signs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer_spec.hpp"

namespace shardscope::runtime {

/// The patterns of a named splitter, applied one after another; empty for kPatterns.
std::vector<std::string> splitter_patterns(Splitter splitter);

/// Each pattern splits the pieces of the one before into its matches and what lies between them. Without patterns the
/// text is one piece. Takes any bytes: one that is not UTF-8 counts as a sign that is neither letter, digit nor blank.
/// Safe to use from several threads at once.
class PieceSplitter {
 public:
  /// source: file, for errors. Throws UserError for a pattern that PCRE2 does not compile, or that means something
  /// else in PCRE2 than in Oniguruma, for which tokenizer.json's patterns are written.
  PieceSplitter(std::span<const std::string> patterns, std::string source);
  ~PieceSplitter();
  PieceSplitter(PieceSplitter&&) noexcept;
  PieceSplitter& operator=(PieceSplitter&&) noexcept;

  /// The pieces, views into `text`; together they are the text. Throws UserError when a pattern needs more steps
  /// than PCRE2's limits allow.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Pattern;
  std::vector<Pattern> patterns_;
  std::string source_;
};

}  // namespace shardscope::runtime
