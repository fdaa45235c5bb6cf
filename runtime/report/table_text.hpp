// What the tables share: figures as short text, columns side by side, sentences broken into lines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/measure/point.hpp"

namespace shardscope::runtime {

inline constexpr size_t kTableColumns = 100;
inline constexpr const char* kUnknown = "n/a";

/// At most eight characters (and a sign), to a figure that means something whatever its size: "0.053", "5.08", "345.2",
/// "12346", "1.2e+09".
std::string figure_text(double value);
std::string figure_text(const std::optional<double>& value);

/// A fraction in percent: "55".
std::string percent_text(const std::optional<double>& fraction);

/// Fractions of the ranks in percent: "50..60", or "55" where all are that.
std::string percent_text(const std::optional<Spread>& spread);

/// Characters of UTF-8 text (which are as wide as each other in what we print).
size_t display_width(std::string_view text);

/// The greatest width of a line of `text`.
size_t widest_line(std::string_view text);

/// Columns aligned, the first left, the others right, `gap` spaces between; no spaces at the end of a line.
std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t gap);

/// In a text for `wrapped`: a space at which no line ends.
inline constexpr char kNoBreak = '\x1f';

/// `sentence` in lines of at most kTableColumns, all but the first indented by two; broken at spaces, but not between a
/// number and its unit, nor at kNoBreak, which becomes a space.
std::string wrapped(std::string_view sentence);

}  // namespace shardscope::runtime
