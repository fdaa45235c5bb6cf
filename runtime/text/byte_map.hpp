// GPT-2's printable byte map: byte-level vocabularies write each byte as one printable character (blank is "Ġ").
// Source: bytes_to_unicode() of github.com/openai/gpt-2 src/encoder.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shardscope::runtime {

/// The character that stands for a byte, as UTF-8.
std::string printable_byte(uint8_t byte);

/// The bytes that a vocabulary's token stands for; none if a character is outside the map.
std::optional<std::string> bytes_of_printable(std::string_view token);

}  // namespace shardscope::runtime
