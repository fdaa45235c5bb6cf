#include "runtime/text/byte_map.hpp"

#include <array>

#include "runtime/text/utf8.hpp"

namespace shardscope::runtime {
namespace {

constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

// The other 68 bytes, in order, are U+0100, U+0101, ...
constexpr std::array<uint32_t, 256> make_code_points() {
  std::array<uint32_t, 256> code_points{};
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) code_points[byte] = stands_for_itself(byte) ? byte : next++;
  return code_points;
}
constexpr std::array<uint32_t, 256> kCodePoints = make_code_points();

constexpr std::array<int16_t, 0x144> make_bytes() {
  std::array<int16_t, 0x144> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (uint32_t byte = 0; byte < 256; ++byte) bytes[kCodePoints[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, 0x144> kBytes = make_bytes();

}  // namespace

std::string printable_byte(uint8_t byte) {
  std::string out;
  append_utf8(kCodePoints[byte], out);
  return out;
}

std::optional<std::string> bytes_of_printable(std::string_view token) {
  std::string out;
  for (size_t at = 0; at < token.size();) {
    const Utf8Char next = read_utf8(token, at);
    if (next.length == 0 || next.code_point >= kBytes.size() || kBytes[next.code_point] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kBytes[next.code_point]));
    at += next.length;
  }
  return out;
}

}  // namespace shardscope::runtime
