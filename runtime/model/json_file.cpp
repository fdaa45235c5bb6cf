#include "runtime/model/json_file.hpp"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/mapped_file.hpp"

namespace shardscope::runtime {
namespace {

constexpr int64_t kDepthLimit = 64;

/// Nesting is checked before the parser sees the text, so that no parser's stack depends on the file.
void check_depth(std::string_view text, const std::string& where) {
  int64_t depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDepthLimit) {
        throw UserError(fmt::format("JSON nests deeper than {} levels at byte {}", kDepthLimit, i), where,
                        "use a file that was not tampered with");
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string out(text.substr(0, limit));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, '?');
  if (text.size() > out.size()) out += "...";
  return out;
}

std::string read_text_file(const std::string& path, int64_t limit_bytes) {
  const MappedFile file(path);
  if (static_cast<int64_t>(file.bytes().size()) > limit_bytes) {
    throw UserError(
        fmt::format("{} bytes are more than a file of this kind may have ({})", file.bytes().size(), limit_bytes), path,
        "use the original file");
  }
  return std::string(file.text());
}

nlohmann::json parse_json(std::string_view text, const std::string& where) {
  check_depth(text, where);
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw UserError(
          fmt::format("the key \"{}\" stands twice in one JSON object", printable(parsed.get<std::string>())), where,
          "remove one of them");
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& error) {
    std::string_view reason = error.what();
    reason.remove_prefix(std::min(reason.size(), reason.find("] ") + 2));  // without "[json.exception.…] "
    throw UserError("not valid JSON: " + printable(reason, 250), where, "use the original file");
  }
}

}  // namespace shardscope::runtime
