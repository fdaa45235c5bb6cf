// Lines and tables for people, out of texts of unknown origin: names and warnings may quote any file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::topology {

/// The same text, with "?" for control characters (a terminal would obey them), marks that turn the direction of
/// writing, and bytes that are no UTF-8. What it gives may stand in XML once it is escaped.
std::string printable(std::string_view text);

/// Characters of UTF-8 text, each of the same width.
size_t display_width(std::string_view text);

/// One line of a table.
using Row = std::vector<std::string>;

/// Columns aligned, two spaces between, as `alignment` says of each: 'l' or 'r' (the last letter counts for all that
/// follow). `indent` spaces before each line, none at its end; each line ends with a newline.
std::string aligned(const std::vector<Row>& rows, std::string_view alignment, size_t indent = 0);

/// `text` in lines of at most `width` columns, broken at spaces; the first begins at `first` columns, the others at
/// `indent`. A longer word has its line for itself. Ends with a newline.
std::string wrapped(std::string_view text, size_t width, size_t first = 0, size_t indent = 2);

/// "0-3,6": ascending numbers, runs of more than two as a range.
std::string ranges_text(const std::vector<int>& numbers);

/// At most five characters for figures up to 99999: "0.36", "5.08", "34.9", "346".
std::string short_figure(double value);

/// "8 B", "64 KiB", "1.5 GiB".
std::string bytes_text(int64_t bytes);

/// "1 pair", "12 pairs".
std::string counted(int64_t count, std::string_view noun);

}  // namespace shardscope::topology
