// Unicode's normalisation form NFC over any bytes (Qwen's tokenizers ask for it). Built on libutf8proc's tables.
#pragma once

#include <string>
#include <string_view>

namespace shardscope::runtime {

/// The text in form NFC; bytes that are not UTF-8 stay where they are, and no mark crosses them. O(n log n).
std::string to_nfc(std::string_view text);

}  // namespace shardscope::runtime
