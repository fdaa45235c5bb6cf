#include "runtime/text/utf8.hpp"

namespace shardscope::runtime {
namespace {

// The Unicode Standard, table 3-7: the second byte has its own range after some first bytes; later ones are 80..BF.
struct Lead {
  size_t length = 0;
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xC2) return {.length = 0};
  if (byte < 0xE0) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_low = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_high = 0x9F};
  if (byte < 0xF0) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_low = 0x90};
  if (byte < 0xF4) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .second_high = 0x8F};
  return {.length = 0};
}

// How many of the first bytes agree with the lead byte's rule.
size_t count_fitting(std::string_view bytes, const Lead& lead) {
  size_t count = 1;
  for (; count < lead.length && count < bytes.size(); ++count) {
    const auto byte = static_cast<uint8_t>(bytes[count]);
    const bool fits = count == 1 ? byte >= lead.second_low && byte <= lead.second_high : byte >= 0x80 && byte <= 0xBF;
    if (!fits) break;
  }
  return count;
}

}  // namespace

Utf8Char read_utf8(std::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {.code_point = first, .length = 1};
  const Lead lead = lead_of(first);
  const std::string_view rest = text.substr(at);
  if (lead.length == 0 || count_fitting(rest, lead) != lead.length) return {};
  uint32_t value = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) value = (value << 6) | (static_cast<uint8_t>(rest[i]) & 0x3Fu);
  return {.code_point = value, .length = lead.length};
}

bool begins_utf8(std::string_view tail) {
  if (tail.empty()) return false;
  const Lead lead = lead_of(static_cast<uint8_t>(tail[0]));
  return tail.size() < lead.length && count_fitting(tail, lead) == tail.size();
}

void append_utf8(uint32_t code_point, std::string& out) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

bool is_blank(uint32_t code_point) {
  if (code_point <= 0x20) return code_point == 0x20 || (code_point >= 0x09 && code_point <= 0x0D);
  return code_point == 0x85 || code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 || code_point == 0x2029 ||
         code_point == 0x202F || code_point == 0x205F || code_point == 0x3000;
}

}  // namespace shardscope::runtime
