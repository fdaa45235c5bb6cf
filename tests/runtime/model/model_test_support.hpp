// What the tests of runtime/model share: the recorded cases, folders that vanish, and a writer of small GGUF files.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "kernels/dtype.hpp"
#include "runtime/model/open_model.hpp"

namespace shardscope::runtime::test {

namespace fs = std::filesystem;

fs::path data_folder();  // tests/data
inline fs::path case_folder(const std::string& name) {
  return data_folder() / "cases" / name;
}

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

/// A folder of its own under the system's temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "shardscope-model-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void copy_case(const fs::path& from) const { fs::copy(from, path_, fs::copy_options::recursive); }

 private:
  fs::path path_;
};

/// The message of the UserError that `call` must throw.
template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  FAIL("expected a UserError");
  return {};
}

inline OpenedModel open(const fs::path& path) {
  return open_model({.model = path.string()});
}

/// A whole tensor as fp32.
inline std::vector<float> values(const WeightSource& weights, WeightId id, WeightShape shape) {
  const kernels::DType dtype = weights.dtype(id);
  std::vector<std::byte> raw(static_cast<size_t>(shape.rows * kernels::row_bytes(dtype, shape.columns)));
  weights.read(id, {0, shape.rows}, {0, shape.columns}, raw);
  std::vector<float> out(static_cast<size_t>(shape.rows * shape.columns));
  kernels::dequantise_row(dtype, raw, out);
  return out;
}

inline std::vector<float> values(const OpenedModel& model, WeightId id) {
  return values(*model.weights, id, shape_of(model.config, id.role));
}

/// Writes GGUF version 3, field by field.
class GgufWriter {
 public:
  GgufWriter& text(std::string_view key, std::string_view value) {
    return start(key, 8).string(keys_, value).counted();
  }
  GgufWriter& u32(std::string_view key, uint32_t value) { return start(key, 4).raw(keys_, value).counted(); }
  GgufWriter& f32(std::string_view key, float value) { return start(key, 6).raw(keys_, value).counted(); }
  GgufWriter& boolean(std::string_view key, bool value) {
    return start(key, 7).raw(keys_, static_cast<uint8_t>(value)).counted();
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& list) {
    start(key, 9).raw(keys_, uint32_t{8}).raw(keys_, static_cast<uint64_t>(list.size()));
    for (const std::string& item : list) string(keys_, item);
    return counted();
  }
  template <typename T>
  GgufWriter& numbers(std::string_view key, uint32_t type, const std::vector<T>& list) {
    start(key, 9).raw(keys_, type).raw(keys_, static_cast<uint64_t>(list.size()));
    for (const T item : list) raw(keys_, item);
    return counted();
  }
  /// An F32 tensor; `shape` as GGUF has it, row length first.
  GgufWriter& tensor(std::string_view name, const std::vector<uint64_t>& shape, const std::vector<float>& data) {
    string(infos_, name).raw(infos_, static_cast<uint32_t>(shape.size()));
    for (const uint64_t size : shape) raw(infos_, size);
    raw(infos_, uint32_t{0}).raw(infos_, static_cast<uint64_t>(data_.size()));
    for (const float value : data) raw(data_, value);
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
    return *this;
  }
  std::string bytes() const {
    std::string head = "GGUF";
    GgufWriter scratch;
    scratch.raw(head, uint32_t{3}).raw(head, tensor_count_).raw(head, key_count_);
    head += keys_ + infos_;
    head.resize((head.size() + 31) / 32 * 32);
    return head + data_;
  }

 private:
  template <typename T>
  GgufWriter& raw(std::string& target, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    target.append(bytes, sizeof value);
    return *this;
  }
  GgufWriter& string(std::string& target, std::string_view value) {
    raw(target, static_cast<uint64_t>(value.size()));
    target += value;
    return *this;
  }
  GgufWriter& start(std::string_view key, uint32_t type) { return string(keys_, key).raw(keys_, type); }
  GgufWriter& counted() {
    ++key_count_;
    return *this;
  }

  std::string keys_;
  std::string infos_;
  std::string data_;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
};

/// A one-layer llama with hidden 8, 2 query heads and 1 KV head of 4, ffn 8, vocab 4; q and k biased. Every value of
/// tensor t is t + index / 1000 in file order.
inline GgufWriter small_gguf(std::string_view architecture = "llama") {
  const std::string prefix = std::string(architecture) + ".";
  GgufWriter file;
  file.text("general.architecture", architecture)
      .u32(prefix + "block_count", 1)
      .u32(prefix + "context_length", 16)
      .u32(prefix + "embedding_length", 8)
      .u32(prefix + "feed_forward_length", 8)
      .u32(prefix + "attention.head_count", 2)
      .u32(prefix + "attention.head_count_kv", 1)
      .f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
  float number = 0;
  const auto add = [&](std::string_view name, std::vector<uint64_t> shape) {
    size_t count = 1;
    for (const uint64_t size : shape) count *= size;
    std::vector<float> data(count);
    for (size_t i = 0; i < count; ++i) data[i] = number + static_cast<float>(i) / 1000;
    file.tensor(name, shape, data);
    ++number;
  };
  add("token_embd.weight", {8, 4});         // 0
  add("blk.0.attn_norm.weight", {8});       // 1
  add("blk.0.attn_q.weight", {8, 8});       // 2
  add("blk.0.attn_q.bias", {8});            // 3
  add("blk.0.attn_k.weight", {8, 4});       // 4
  add("blk.0.attn_k.bias", {4});            // 5
  add("blk.0.attn_v.weight", {8, 4});       // 6
  add("blk.0.attn_v.bias", {4});            // 7
  add("blk.0.attn_output.weight", {8, 8});  // 8
  add("blk.0.ffn_norm.weight", {8});        // 9
  add("blk.0.ffn_gate.weight", {8, 8});     // 10
  add("blk.0.ffn_up.weight", {8, 8});       // 11
  add("blk.0.ffn_down.weight", {8, 8});     // 12
  add("output_norm.weight", {8});           // 13
  return file;
}

}  // namespace shardscope::runtime::test
