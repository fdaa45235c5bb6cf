// Parser of GGUF files, version 2 and 3: header, metadata, tensor infos. Every count is checked against the bytes left
// before it is used; nothing is allocated by an unchecked count. Values stay in the map until they are asked for.
// Leaves the meaning of keys and names to gguf_model. Source: ggml docs/gguf.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/file_weights.hpp"
#include "runtime/model/mapped_file.hpp"

namespace shardscope::runtime {

class GgufFile {
 public:
  /// Throws UserError naming the file and the first fault.
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  uint32_t version() const { return version_; }
  bool has(std::string_view key) const { return values_.contains(key); }
  std::vector<std::string_view> keys() const;

  // The value of a key, or nothing when it is absent. Throw UserError naming the key for a value of another type.
  std::optional<int64_t> whole_number(std::string_view key) const;  // any integer type that fits
  std::optional<double> number(std::string_view key) const;         // f32 or f64
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  bool is_array(std::string_view key) const;
  std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  std::optional<std::vector<int64_t>> whole_numbers(std::string_view key) const;

  /// Hands over the tensors and the map they point into. Values must not be asked for after it.
  StoredTensors take_tensors();
  const std::vector<StoredTensor>& tensors() const { return stored_.tensors; }

 private:
  struct Value {
    uint32_t type = 0;  // of the value, or of each item
    bool array = false;
    uint64_t count = 1;
    std::span<const std::byte> bytes;  // without type and count
  };
  class Cursor;

  [[noreturn]] void fail(const std::string& what) const;
  Value read_value(Cursor& cursor, std::string_view key) const;
  void read_metadata(Cursor& cursor, uint64_t count);
  void read_tensor_infos(Cursor& cursor, uint64_t count);
  const Value* scalar(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view wanted) const;

  MappedFile file_;
  uint32_t version_ = 0;
  std::map<std::string_view, Value> values_;  // views into the map
  StoredTensors stored_;
};

}  // namespace shardscope::runtime
