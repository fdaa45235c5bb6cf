#include "runtime/text/splitter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <optional>

#include "kernels/base/error.hpp"
#include "runtime/text/utf8.hpp"

namespace shardscope::runtime {
namespace {

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, FreeWith<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, FreeWith<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, FreeWith<pcre2_jit_stack_free>>;

// github.com/openai/gpt-2 src/encoder.py; the ByteLevel pre-tokenizer of Hugging Face's tokenizers.
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// tokenizer.json of Meta-Llama-3-8B.
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// tokenizer.json of Qwen2-7B.
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string error_text(int code) {
  std::array<unsigned char, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

// What has another meaning in Oniguruma's Ruby syntax: \h is a hexadecimal digit, \w and \b know marks, && intersects
// classes, (?m) lets the dot match line breaks.
void refuse_other_dialect(const std::string& pattern, const std::string& source) {
  for (const char* construct : {"\\h", "\\H", "\\w", "\\W", "\\b", "\\B", "&&", "(?m"}) {
    if (pattern.find(construct) == std::string::npos) continue;
    throw UserError(fmt::format("the split pattern has {}, which is not supported", construct), source,
                    "use a model whose tokenizer splits by letters, digits and blanks");
  }
}

// What the patterns see, byte for byte as long as the text: bytes that are not UTF-8 become U+0001, so that PCRE2 takes
// the text; U+180E becomes U+200B, as PCRE2's \s has it but Unicode's White_Space does not (since version 6.3). None if
// the text can be used as it is.
std::optional<std::string> matchable_copy(std::string_view text) {
  std::optional<std::string> copy;
  const auto put = [&](size_t at, std::string_view bytes) {
    if (!copy) copy.emplace(text);
    std::copy(bytes.begin(), bytes.end(), copy->begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = read_utf8(text, at);
    if (next.length == 0) put(at, "\x01");
    if (next.code_point == 0x180E) put(at, "\xE2\x80\x8B");
    at += next.length == 0 ? 1 : next.length;
  }
  return copy;
}

constexpr size_t kJitStackBytes = size_t{32} << 10;
constexpr size_t kMaxJitStackBytes = size_t{8} << 20;

struct Range {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace

struct PieceSplitter::Pattern {
  Code code;
};

namespace {

// One call's matching state for one pattern.
class Matcher {
 public:
  Matcher(const pcre2_code* code, const std::string& source)
      : code_(code),
        source_(source),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kJitStackBytes, kMaxJitStackBytes, nullptr)) {
    if (!data_ || !context_) throw std::bad_alloc();
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  /// The first match in `text` (valid UTF-8) at or after `from`.
  std::optional<Range> find(std::string_view text, size_t from) {
    int result = match(text, from, PCRE2_NO_UTF_CHECK);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = match(text, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result < 0) {
      throw UserError(fmt::format("the split pattern cannot be matched ({})", error_text(result)), source_,
                      "shorten the prompt or use another tokenizer");
    }
    const size_t* bounds = pcre2_get_ovector_pointer(data_.get());
    // \K can put the begin behind the end, or before `from`.
    const size_t end = std::max(bounds[1], from);
    return Range{.begin = std::clamp(bounds[0], from, end), .end = end};
  }

 private:
  int match(std::string_view text, size_t from, uint32_t options) {
    // data() may be null for an empty view, which PCRE2 10.42 accepts only for length 0.
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options, data_.get(),
                       context_.get());
  }

  const pcre2_code* code_;
  const std::string& source_;
  MatchData data_;
  MatchContext context_;
  JitStack stack_;
};

// Appends `piece` cut at the begin and at the end of every match.
void split_piece(Matcher& matcher, std::string_view text, Range piece, std::vector<Range>& out) {
  const std::string_view subject = text.substr(piece.begin, piece.end - piece.begin);
  size_t cut = 0;
  const auto cut_at = [&](size_t at) {
    if (at > cut) out.push_back({.begin = piece.begin + cut, .end = piece.begin + at});
    cut = std::max(cut, at);
  };
  for (size_t from = 0; from < subject.size();) {
    const auto match = matcher.find(subject, from);
    if (!match) break;
    cut_at(match->begin);
    cut_at(match->end);
    from = match->end;
    if (match->begin == match->end && from < subject.size()) from += read_utf8(subject, from).length;
  }
  cut_at(subject.size());
}

}  // namespace

std::vector<std::string> splitter_patterns(Splitter splitter) {
  switch (splitter) {
    case Splitter::kGpt2:
      return {kGpt2Pattern};
    case Splitter::kSmolLm:
      return {R"(\p{N})", kGpt2Pattern};
    case Splitter::kLlama3:
      return {kLlama3Pattern};
    case Splitter::kQwen2:
      return {kQwen2Pattern};
    case Splitter::kPatterns:
      return {};
  }
  throw BugError("splitter_patterns: unknown splitter");
}

PieceSplitter::PieceSplitter(std::span<const std::string> patterns, std::string source) : source_(std::move(source)) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  for (const std::string& pattern : patterns) {
    refuse_other_dialect(pattern, source_);
    int error = 0;
    size_t error_at = 0;
    // MULTILINE: ^ and $ match at every line break in Oniguruma's syntax. \C would cut characters.
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &error_at,
                            context.get()));
    if (!code) {
      throw UserError(fmt::format("the split pattern is not understood at byte {} ({})", error_at, error_text(error)),
                      source_, "check the pre_tokenizer of this file");
    }
    // Where the system forbids memory for compiled code, matching works without it, slower.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    patterns_.push_back({.code = std::move(code)});
  }
}

PieceSplitter::~PieceSplitter() = default;
PieceSplitter::PieceSplitter(PieceSplitter&&) noexcept = default;
PieceSplitter& PieceSplitter::operator=(PieceSplitter&&) noexcept = default;

std::vector<std::string_view> PieceSplitter::split(std::string_view text) const {
  if (text.empty()) return {};
  const auto copy = matchable_copy(text);
  const std::string_view subject = copy ? *copy : text;
  std::vector<Range> pieces{{.begin = 0, .end = text.size()}};
  for (const Pattern& pattern : patterns_) {
    Matcher matcher(pattern.code.get(), source_);
    std::vector<Range> finer;
    for (const Range& piece : pieces) split_piece(matcher, subject, piece, finer);
    pieces = std::move(finer);
  }
  std::vector<std::string_view> views;
  views.reserve(pieces.size());
  for (const Range& piece : pieces) views.push_back(text.substr(piece.begin, piece.end - piece.begin));
  return views;
}

}  // namespace shardscope::runtime
