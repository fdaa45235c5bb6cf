// One character of UTF-8 at a time, with the strict rules (no surrogates, no overlong forms, at most U+10FFFF). For the
// parts of runtime/text that must take any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardscope::runtime {

struct Utf8Char {
  uint32_t code_point = 0;
  size_t length = 0;  // bytes; 0 where no whole character stands
};

/// The character that begins at byte `at` (at < text.size()).
Utf8Char read_utf8(std::string_view text, size_t at);

/// True when `tail` is not a whole character yet and more bytes can make it one.
bool begins_utf8(std::string_view tail);

void append_utf8(uint32_t code_point, std::string& out);

/// Unicode's White_Space property.
bool is_blank(uint32_t code_point);

}  // namespace shardscope::runtime
