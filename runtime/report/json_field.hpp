// A value of a JSON document that somebody handed us, together with where it stands: reading is strict, and every
// error names the field. Borrows the document.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/report/document.hpp"

namespace shardscope::runtime {

class Field {
 public:
  /// path: file and field, "report.json: results[3]".
  Field(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  // All throw UserError for a missing key or another type than asked for.
  Field operator[](std::string_view key) const;
  std::vector<Field> items() const;
  double number() const;                               // finite
  int64_t integer(int64_t least, int64_t most) const;  // written as one: 3, not 3.0
  int64_t count() const { return integer(0, INT64_MAX); }
  bool boolean() const;
  const std::string& text() const;

  /// What `read` makes of the field; nullopt for null: f["speedup"].optional(&Field::number).
  template <typename Value>
  std::optional<Value> optional(Value (Field::*read)() const) const {
    if (value_->is_null()) return std::nullopt;
    return (this->*read)();
  }

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  [[noreturn]] void expected(const char* what) const;
  const Json* value_;
  std::string path_;
};

}  // namespace shardscope::runtime
