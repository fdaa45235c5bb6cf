// Small text and JSON files of strangers: bounded in size and depth, and quoted safely in error messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace shardscope::runtime {

/// The whole text of a file. Throws UserError when it cannot be read, is larger than the limit, or is an LFS pointer.
std::string read_text_file(const std::string& path, int64_t limit_bytes);

/// Parses JSON. Throws UserError naming `where` for text that is no JSON or no UTF-8, that nests deeper than 64, or in
/// which one object has a key twice.
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// `text` from a file, fit for an error message: at most `limit` bytes, control characters replaced.
std::string printable(std::string_view text, size_t limit = 100);

}  // namespace shardscope::runtime
