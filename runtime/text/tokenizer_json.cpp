// Hugging Face's tokenizer.json, as far as byte-level BPE needs it. What it says about truncation and padding is for
// training and is not looked at.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "kernels/base/error.hpp"
#include "runtime/text/byte_map.hpp"
#include "runtime/text/splitter.hpp"
#include "runtime/text/tokenizer.hpp"

namespace shardscope::runtime {
namespace {

using nlohmann::json;

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;  // the largest in use are about 35 MB
constexpr int kMaxDepth = 64;
constexpr int64_t kMaxTokens = 1 << 22;
constexpr const char* kUseAnother = "use a model with a byte-level BPE tokenizer that is written in the known ways";
constexpr const char* kDamaged = "the file is damaged or was not converted well: fetch it again";

std::string read_text(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) throw UserError("cannot read the file (" + error.message() + ")", path, "check the path and permissions");
  if (static_cast<int64_t>(size) > kMaxFileBytes) {
    throw UserError(fmt::format("the file has {} bytes, more than the {} that are read", size, kMaxFileBytes), path,
                    kDamaged);
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    throw UserError("cannot read the file", path, "check the path and permissions");
  }
  return text;
}

// The values of one file, with errors that name it.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {
    const auto bound_depth = [this](int depth, json::parse_event_t, json&) {
      if (depth > kMaxDepth) refuse(fmt::format("the JSON is nested deeper than {} levels", kMaxDepth), kDamaged);
      return true;
    };
    try {
      root_ = json::parse(read_text(path_), bound_depth);
    } catch (const json::exception& fault) {
      refuse(fmt::format("the JSON cannot be read ({})", fault.what()), kDamaged);
    }
    if (!root_.is_object()) refuse("the JSON is not an object", kDamaged);
  }

  const json& root() const { return root_; }
  const std::string& path() const { return path_; }

  [[noreturn]] void refuse(const std::string& what, const char* what_to_do = kUseAnother) const {
    throw UserError(std::filesystem::path(path_).filename().string() + ": " + what, path_, what_to_do);
  }

  /// The member, or null if the object does not have it.
  const json& member(const json& object, const char* key) const {
    static const json kNull;
    if (!object.is_object()) return kNull;
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
  }
  const json& array(const json& object, const char* key) const {
    const json& value = member(object, key);
    if (!value.is_array()) refuse(fmt::format("\"{}\" is not a list", key), kDamaged);
    return value;
  }
  std::string text(const json& value, const char* name) const {
    if (!value.is_string()) refuse(fmt::format("\"{}\" is not a text", name), kDamaged);
    return value.get<std::string>();
  }
  bool flag(const json& object, const char* key, bool otherwise) const {
    const json& value = member(object, key);
    if (value.is_null()) return otherwise;
    if (!value.is_boolean()) refuse(fmt::format("\"{}\" is neither true nor false", key), kDamaged);
    return value.get<bool>();
  }
  int32_t token_id(const json& value, const char* name) const {
    if (!value.is_number_integer() || value < 0 || value >= kMaxTokens) {
      refuse(fmt::format("an id of \"{}\" is not a number from 0 to {}", name, kMaxTokens - 1), kDamaged);
    }
    return value.get<int32_t>();
  }
  /// The "type" of a part; "null" where there is none.
  std::string type_of(const json& part, const char* name) const {
    if (part.is_null()) return "null";
    return text(member(part, "type"), name);
  }
  [[noreturn]] void refuse_type(const char* name, const std::string& type, const char* known) const {
    refuse(fmt::format("{} {} is not supported yet (known: {})", name, json(type).dump(), known));
  }

 private:
  std::string path_;
  json root_;
};

// Calls `visit` for the part, or for each part of a Sequence (of Sequences).
template <typename Visit>
void for_each_part(const Reader& file, const json& part, const char* name, const char* list_key, const Visit& visit) {
  if (part.is_null()) return;
  if (file.type_of(part, name) != "Sequence") return visit(part);
  for (const json& inner : file.array(part, list_key)) for_each_part(file, inner, name, list_key, visit);
}

void refuse_option(const Reader& file, const json& model, const char* key) {
  const json& value = file.member(model, key);
  const bool off = value.is_null() || (value.is_number() && value == 0) || (value.is_string() && value == "") ||
                   (value.is_boolean() && value == false);
  if (!off) file.refuse(fmt::format("{} {} is not supported yet", key, value.dump().substr(0, 40)));
}

void read_vocab(const Reader& file, const json& model, TokenizerSpec& spec) {
  const json& vocab = file.member(model, "vocab");
  if (!vocab.is_object()) file.refuse("\"vocab\" is not an object", kDamaged);
  for (const auto& [token, value] : vocab.items()) {
    const auto id = static_cast<size_t>(file.token_id(value, "vocab"));
    if (id >= spec.tokens.size()) spec.tokens.resize(id + 1);
    if (!spec.tokens[id].empty()) file.refuse(fmt::format("two tokens of \"vocab\" have the id {}", id), kDamaged);
    spec.tokens[id] = token;
  }
}

void read_merges(const Reader& file, const json& model, TokenizerSpec& spec) {
  for (const json& merge : file.array(model, "merges")) {
    if (merge.is_string()) {
      const auto& pair = merge.get_ref<const std::string&>();
      const size_t blank = pair.find(' ');
      if (blank == std::string::npos || pair.find(' ', blank + 1) != std::string::npos) {
        file.refuse(fmt::format("merge {} is not two tokens", spec.merges.size()), kDamaged);
      }
      spec.merges.emplace_back(pair.substr(0, blank), pair.substr(blank + 1));
    } else if (merge.is_array() && merge.size() == 2) {
      spec.merges.emplace_back(file.text(merge[0], "merges"), file.text(merge[1], "merges"));
    } else {
      file.refuse(fmt::format("merge {} is not two tokens", spec.merges.size()), kDamaged);
    }
  }
}

void read_model(const Reader& file, TokenizerSpec& spec) {
  const json& model = file.member(file.root(), "model");
  if (!model.is_object()) file.refuse("there is no \"model\"", kDamaged);
  // Files from before tokenizers 0.9 leave the type out; only BPE has merges.
  const bool untyped = file.member(model, "type").is_null() && !file.member(model, "merges").is_null();
  const std::string type = untyped ? "BPE" : file.text(file.member(model, "type"), "model.type");
  if (type != "BPE") file.refuse_type("model", type, "BPE");
  for (const char* key : {"byte_fallback", "dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    refuse_option(file, model, key);
  }
  read_vocab(file, model, spec);
  read_merges(file, model, spec);
  spec.ignore_merges = file.flag(model, "ignore_merges", false);
  spec.fuse_unk = file.flag(model, "fuse_unk", false);
  const json& unknown = file.member(model, "unk_token");
  if (unknown.is_null()) return;
  const json& id = file.member(file.member(model, "vocab"), file.text(unknown, "unk_token").c_str());
  if (!id.is_null()) spec.unk_id = file.token_id(id, "vocab");
}

void read_added(const Reader& file, TokenizerSpec& spec) {
  if (file.member(file.root(), "added_tokens").is_null()) return;
  for (const json& entry : file.array(file.root(), "added_tokens")) {
    AddedToken token{
        .id = file.token_id(file.member(entry, "id"), "added_tokens"),
        .content = file.text(file.member(entry, "content"), "added_tokens"),
        .special = file.flag(entry, "special", false),
        .lstrip = file.flag(entry, "lstrip", false),
        .rstrip = file.flag(entry, "rstrip", false),
        .single_word = file.flag(entry, "single_word", false),
        .normalized = file.flag(entry, "normalized", false),
    };
    const auto id = static_cast<size_t>(token.id);
    if (id >= spec.tokens.size()) spec.tokens.resize(id + 1);
    std::string& known = spec.tokens[id];
    if (known.empty()) known = token.content;
    if (known != token.content && bytes_of_printable(known) != token.content) {
      file.refuse(fmt::format("id {} is the token {} and the added token {}", id, json(known).dump(),
                              json(token.content).dump()),
                  kDamaged);
    }
    spec.added.push_back(std::move(token));
  }
}

void read_normalizer(const Reader& file, TokenizerSpec& spec) {
  for_each_part(file, file.member(file.root(), "normalizer"), "normalizer", "normalizers", [&](const json& part) {
    const std::string type = file.type_of(part, "normalizer");
    if (type != "NFC") file.refuse_type("normalizer", type, "none, NFC, Sequence");
    spec.nfc = true;
  });
}

// In a pattern, the text itself: \Q..\E, with every \E of the text outside.
std::string quoted(std::string text) {
  for (size_t at = 0; (at = text.find("\\E", at)) != std::string::npos; at += 7) text.replace(at, 2, "\\E\\\\E\\Q");
  return "\\Q" + text + "\\E";
}

std::string split_pattern(const Reader& file, const json& part) {
  const json& pattern = file.member(part, "pattern");
  const json& behavior = file.member(part, "behavior");
  if (behavior != "Isolated") file.refuse("pre_tokenizer Split behavior " + behavior.dump() + " is not supported yet");
  if (file.flag(part, "invert", false)) file.refuse("pre_tokenizer Split with invert is not supported yet");
  const json& expression = file.member(pattern, "Regex");
  if (!expression.is_null()) return file.text(expression, "Regex");
  return quoted(file.text(file.member(pattern, "String"), "pattern"));
}

void read_pre_tokenizer(const Reader& file, TokenizerSpec& spec) {
  spec.splitter = Splitter::kPatterns;
  bool byte_level = false;
  const json& root = file.member(file.root(), "pre_tokenizer");
  for_each_part(file, root, "pre_tokenizer", "pretokenizers", [&](const json& part) {
    const std::string type = file.type_of(part, "pre_tokenizer");
    if (byte_level) file.refuse("pre_tokenizer ByteLevel is not the last one, which is not supported yet");
    if (type == "Split") {
      spec.patterns.push_back(split_pattern(file, part));
    } else if (type == "Digits") {
      spec.patterns.emplace_back(file.flag(part, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    } else if (type == "ByteLevel") {
      byte_level = true;
      spec.add_prefix_space = file.flag(part, "add_prefix_space", true);
      if (spec.add_prefix_space && !spec.patterns.empty()) {
        file.refuse("pre_tokenizer ByteLevel with add_prefix_space after a split is not supported yet");
      }
      if (!file.flag(part, "use_regex", true)) return;
      for (std::string& pattern : splitter_patterns(Splitter::kGpt2)) spec.patterns.push_back(std::move(pattern));
    } else {
      file.refuse_type("pre_tokenizer", type, "ByteLevel, Split, Digits, Sequence");
    }
  });
  if (!byte_level) file.refuse("a pre_tokenizer without ByteLevel is not supported yet");
}

void read_decoder(const Reader& file) {
  const json& decoder = file.member(file.root(), "decoder");
  if (decoder.is_null()) file.refuse("no decoder (known: ByteLevel)");
  for_each_part(file, decoder, "decoder", "decoders", [&](const json& part) {
    const std::string type = file.type_of(part, "decoder");
    if (type != "ByteLevel") file.refuse_type("decoder", type, "ByteLevel");
  });
}

// The one token that the template puts in front of the text, if any.
void read_template(const Reader& file, const json& part, TokenizerSpec& spec) {
  bool text_seen = false;
  for (const json& piece : file.array(part, "single")) {
    if (!file.member(piece, "Sequence").is_null()) {
      text_seen = true;
      continue;
    }
    const std::string name = file.text(file.member(file.member(piece, "SpecialToken"), "id"), "SpecialToken");
    const json& ids = file.array(file.member(file.member(part, "special_tokens"), name.c_str()), "ids");
    if (text_seen || spec.add_bos || ids.size() != 1) {
      file.refuse("post_processor TemplateProcessing with more than one token before the text is not supported yet");
    }
    spec.add_bos = true;
    spec.bos_id = file.token_id(ids[0], "special_tokens");
  }
}

void read_post_processor(const Reader& file, TokenizerSpec& spec) {
  const json& root = file.member(file.root(), "post_processor");
  for_each_part(file, root, "post_processor", "processors", [&](const json& part) {
    const std::string type = file.type_of(part, "post_processor");
    if (type == "TemplateProcessing") {
      read_template(file, part, spec);
    } else if (type != "ByteLevel") {
      file.refuse_type("post_processor", type, "ByteLevel, TemplateProcessing, Sequence");
    }
  });
}

// A token that tokenizer_config.json names, as a text or as an object with its content.
std::optional<int32_t> named_token(const Reader& config, const char* key, const TokenizerSpec& spec) {
  const json& value = config.member(config.root(), key);
  if (value.is_null()) return std::nullopt;
  const std::string content = config.text(value.is_object() ? config.member(value, "content") : value, key);
  for (const AddedToken& token : spec.added) {
    if (token.content == content) return token.id;
  }
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), content);
  if (content.empty() || found == spec.tokens.end()) return std::nullopt;
  return static_cast<int32_t>(found - spec.tokens.begin());
}

// A text, or a list of named ones, of which "default" is the one for chats.
std::string chat_template(const Reader& config) {
  const json& value = config.member(config.root(), "chat_template");
  if (value.is_null()) return {};
  if (!value.is_array()) return config.text(value, "chat_template");
  for (const json& entry : value) {
    if (config.member(entry, "name") == "default") return config.text(config.member(entry, "template"), "template");
  }
  return {};
}

// What tokenizer_config.json says comes after tokenizer.json: add_bos_token overrules the post-processor, but the
// post-processor's own token stays the begin of the text.
void read_config(const Reader& config, TokenizerSpec& spec) {
  const auto bos = named_token(config, "bos_token", spec);
  if (bos && !spec.bos_id) spec.bos_id = bos;
  spec.eos_id = named_token(config, "eos_token", spec);
  spec.add_bos = config.flag(config.root(), "add_bos_token", spec.add_bos);
  if (spec.add_bos && !spec.bos_id) config.refuse("add_bos_token is true, but bos_token is not a token", kDamaged);
  spec.chat_template = chat_template(config);
}

}  // namespace

TokenizerSpec read_tokenizer_json(const std::string& folder) {
  const std::filesystem::path root(folder);
  const std::string path = (root / "tokenizer.json").string();
  if (!std::filesystem::exists(path)) {
    const bool sentence_piece = std::filesystem::exists(root / "tokenizer.model");
    throw UserError(sentence_piece ? "there is a tokenizer.model (SentencePiece), which is not supported, but no "
                                     "tokenizer.json"
                                   : "there is no tokenizer.json",
                    folder, "add the tokenizer.json of the model");
  }
  const Reader file(path);
  TokenizerSpec spec;
  spec.source = path;
  read_model(file, spec);
  read_added(file, spec);
  read_normalizer(file, spec);
  read_pre_tokenizer(file, spec);
  read_decoder(file);
  read_post_processor(file, spec);

  const auto config = root / "tokenizer_config.json";
  if (std::filesystem::exists(config)) read_config(Reader(config.string()), spec);
  const auto template_file = root / "chat_template.jinja";
  if (std::filesystem::exists(template_file)) spec.chat_template = read_text(template_file.string());
  return spec;
}

}  // namespace shardscope::runtime
