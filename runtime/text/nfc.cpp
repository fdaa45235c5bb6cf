#include "runtime/text/nfc.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "kernels/base/error.hpp"
#include "runtime/text/utf8.hpp"

namespace shardscope::runtime {
namespace {

int combining_class(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

void append_decomposed(uint32_t code_point, std::vector<int32_t>& out) {
  std::array<int32_t, 8> parts{};  // the longest canonical decomposition has 4
  const auto count = utf8proc_decompose_char(static_cast<int32_t>(code_point), parts.data(), parts.size(),
                                             UTF8PROC_DECOMPOSE, nullptr);
  require(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()), "utf8proc_decompose_char failed");
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

// utf8proc's own ordering is quadratic in a run of marks (utf8proc_decompose_custom), hence a sort of each run.
void order_marks(std::vector<int32_t>& code_points) {
  const auto is_starter = [](int32_t code_point) { return combining_class(code_point) == 0; };
  auto run = code_points.begin();
  while (run != code_points.end()) {
    run = std::find_if_not(run, code_points.end(), is_starter);
    const auto end = std::find_if(run, code_points.end(), is_starter);
    std::stable_sort(run, end, [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

void append_composed(std::vector<int32_t>& code_points, std::string& out) {
  if (code_points.empty()) return;
  order_marks(code_points);
  const auto count = utf8proc_normalize_utf32(code_points.data(), static_cast<utf8proc_ssize_t>(code_points.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  require(count >= 0, "utf8proc_normalize_utf32 failed");
  for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(static_cast<uint32_t>(code_points[i]), out);
  code_points.clear();
}

}  // namespace

std::string to_nfc(std::string_view text) {
  // Below U+0300 (first byte 0xCC) nothing changes under NFC.
  const auto may_change = [](char byte) { return static_cast<uint8_t>(byte) >= 0xCC; };
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);

  std::string out;
  std::vector<int32_t> code_points;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = read_utf8(text, at);
    if (next.length == 0) {
      append_composed(code_points, out);
      out.push_back(text[at++]);
      continue;
    }
    append_decomposed(next.code_point, code_points);
    at += next.length;
  }
  append_composed(code_points, out);
  return out;
}

}  // namespace shardscope::runtime
