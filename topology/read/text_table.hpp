// What readers of other tools' printed tables share: text as it was before terminals and copies changed it, its lines
// and words, lists of numbers, and the faults that are found in it. Says nothing of what a table means.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace shardscope::topology {

/// The text without what terminals and copies add: colour codes (also those whose ESC is lost, "[4m"), a byte order
/// mark, carriage returns. Tabs, '|', no-break spaces and other control characters become blanks, "…" becomes "...".
/// Lines keep their numbers.
std::string plain_text(std::string_view text);

/// Walks the lines of a text; `number` is that of the line that next() gave last, from 1.
struct LineCursor {
  std::string_view rest;
  int number = 0;

  /// False at the end of the text.
  bool next(std::string_view& line);
};

/// The words between blanks and tabs, at most the first `most`.
std::vector<std::string_view> split_words(std::string_view line, size_t most);

/// The words of `line` with one blank between each two: two lines that say the same give the same.
std::string joined_words(std::string_view line);

/// Whether the text is a list like "0-3,8" whose numbers ascend, none above `largest`.
bool is_ascending_list(std::string_view text, int largest);

/// "0-3,8" as 0, 1, 2, 3, 8; nullopt unless the numbers ascend (which bounds the list) and none is above `largest`.
std::optional<std::vector<int>> ascending_list(std::string_view text, int largest);

/// 12 for "GPU12" and "GPU"; nullopt unless just a number from 0 to kLargestGpuIndex follows.
std::optional<int> number_after(std::string_view word, std::string_view name);

/// The text in quotes for a warning: at most 32 characters, what cannot be printed as '?'.
std::string quoted(std::string_view text);

/// "GPU0, GPU1 and GPU2"; of many the first eight and a count.
std::string listed(const std::vector<std::string>& names);

/// Collects what is wrong with a text, so that a damaged one gives few warnings rather than thousands.
class Faults {
 public:
  /// Something is lost or doubtful: the topology is not complete.
  void fault(std::string text);
  /// Something is odd, but nothing is lost.
  void note(std::string text);
  /// Appends the warnings to `topology`, and makes it incomplete if there was a fault.
  void move_to(Topology& topology) &&;

 private:
  std::vector<std::string> faults_, notes_;
  size_t faults_left_out_ = 0;
};

}  // namespace shardscope::topology
