#include "runtime/report/json_field.hpp"

#include <cmath>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"

namespace shardscope::runtime {

void Field::refuse(const std::string& what) const {
  throw UserError(what, path_, "use a report of this program that nobody has changed");
}

void Field::expected(const char* what) const {
  constexpr size_t kShown = 40;
  const std::string found = value_->is_structured()
                                ? std::string("an ") + value_->type_name()
                                : printable(value_->dump(-1, ' ', false, Json::error_handler_t::ignore), kShown);
  refuse(fmt::format("{} is expected, not {}", what, found));
}

Field Field::operator[](std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) refuse(fmt::format("the key \"{}\" is missing", key));
  return {*found, fmt::format("{}.{}", path_, key)};
}

std::vector<Field> Field::items() const {
  if (!value_->is_array()) expected("a list");
  std::vector<Field> fields;
  fields.reserve(value_->size());
  for (const Json& item : *value_) fields.emplace_back(item, fmt::format("{}[{}]", path_, fields.size()));
  return fields;
}

double Field::number() const {
  if (!value_->is_number()) expected("a number");
  const double number = value_->get<double>();
  if (!std::isfinite(number)) refuse("a number is not finite");
  return number;
}

int64_t Field::integer(int64_t least, int64_t most) const {
  if (!value_->is_number_integer()) expected("a whole number");
  const bool too_large = value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX};
  const int64_t number = too_large ? INT64_MAX : value_->get<int64_t>();
  if (too_large || number < least || number > most) {
    refuse(fmt::format("{} is not from {} to {}", value_->dump(), least, most));
  }
  return number;
}

bool Field::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

const std::string& Field::text() const {
  if (!value_->is_string()) expected("a text");
  return value_->get_ref<const std::string&>();
}

}  // namespace shardscope::runtime
