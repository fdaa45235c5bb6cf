#include <algorithm>
#include <utility>

#include "kernels/base/error.hpp"
#include "runtime/text/tokenizer.hpp"
#include "runtime/text/utf8.hpp"

namespace shardscope::runtime {
namespace {

// Where the end of `text` that is the beginning of `stop` (but not all of it) starts.
size_t possible_stop(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return text.size() - length;
  }
  return text.size();
}

// `end`, or where the character that is incomplete there starts.
size_t whole_characters(std::string_view text, size_t end) {
  for (size_t length = 1; length < 4 && length <= end; ++length) {
    if (begins_utf8(text.substr(end - length, length))) return end - length;
  }
  return end;
}

}  // namespace

StreamDecoder::StreamDecoder(std::vector<std::string> stop_texts) : stop_texts_(std::move(stop_texts)) {
  for (const std::string& stop : stop_texts_) {
    if (stop.empty()) throw UserError("a stop text is empty", "stop texts", "leave it out or give some text");
  }
}

std::string StreamDecoder::push(std::string_view bytes) {
  if (stopped_) return {};
  pending_ += bytes;

  size_t first_end = std::string::npos;
  size_t cut = std::string::npos;
  for (const std::string& stop : stop_texts_) {
    const size_t begin = pending_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (std::pair(end, begin) >= std::pair(first_end, cut)) continue;
    first_end = end;
    cut = begin;
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    pending_.resize(cut);
    return std::exchange(pending_, {});
  }

  size_t safe = pending_.size();
  for (const std::string& stop : stop_texts_) safe = std::min(safe, possible_stop(pending_, stop));
  safe = whole_characters(pending_, safe);
  std::string out = pending_.substr(0, safe);
  pending_.erase(0, safe);
  return out;
}

std::string StreamDecoder::flush() {
  return std::exchange(pending_, {});
}

}  // namespace shardscope::runtime
