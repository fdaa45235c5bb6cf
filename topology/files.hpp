// Small files of /proc and /sys, and the words in them. A file that is missing, cannot be read or holds something else
// gives nothing: no function here throws for what it finds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardscope::topology {

/// Whether something of that name exists (symbolic links are followed).
bool path_exists(const std::string& path);

/// Without white space and zero bytes at both ends.
std::string trimmed(std::string_view text);

/// The first line, trimmed; empty if there is none.
std::string first_line(const std::string& path);

/// All lines; none if the file cannot be read.
std::vector<std::string> read_lines(const std::string& path);

/// The words between white space.
std::vector<std::string> words_of(const std::string& text);

/// A finite decimal number that is the whole text.
std::optional<double> number_of(std::string_view text);

/// A whole number of at least 0 that is the whole text.
std::optional<int64_t> count_of(std::string_view text);

/// First line "0" is false, any other number of at least 0 true.
std::optional<bool> read_switch(const std::string& path);

/// "0-3,8" as 0, 1, 2, 3, 8: ascending, each once. Empty text is an empty list; nullopt where it is no such list.
std::optional<std::vector<int>> core_list_of(std::string_view text);

/// N of every entry `prefix`N of a folder, ascending: cpu0, cpu1, … of /sys/devices/system/cpu.
std::vector<int> numbered_entries(const std::string& folder, std::string_view prefix);

}  // namespace shardscope::topology
