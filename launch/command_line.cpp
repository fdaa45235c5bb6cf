#include "launch/command_line.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::launch {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

int64_t parse_number(std::string_view text, std::string_view option, std::string_view whole) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stop != end) {
    throw UserError(fmt::format("'{}' is not a list of whole numbers", whole), option,
                    "write 1,2,4,8 or 1..8 or 1..256x2");
  }
  return value;
}

/// What was written after an option, for an error that quotes it.
std::string values_text(const std::vector<std::string>& arguments, const std::string& option) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == option && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with(option + "=")) return arguments[i].substr(option.size() + 1);
  }
  return "";
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view text, const std::vector<std::string>& known) {
  std::optional<std::string> nearest;
  size_t least = std::max<size_t>(2, text.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = edit_distance(text, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

po::variables_map parse_arguments(const po::options_description& options, const std::vector<std::string>& arguments,
                                  std::string_view command, const std::string& positional) {
  const std::string remedy = fmt::format("see shardscope {} --help", command);
  po::variables_map values;
  try {
    const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
    po::positional_options_description words;
    if (!positional.empty()) words.add(positional.c_str(), -1);
    po::store(po::command_line_parser(arguments).options(options).positional(words).style(style).run(), values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& option : options.options()) names.push_back("--" + option->long_name());
    std::string name = error.get_option_name();
    if (!name.starts_with('-')) name = "--" + name;
    const std::optional<std::string> near = nearest_name(name, names);
    throw UserError("unknown option " + name, fmt::format("shardscope {}", command),
                    near ? fmt::format("did you mean {}? {}", *near, remedy) : remedy);
  } catch (const po::too_many_positional_options_error&) {
    std::string stray = "an argument";
    for (const std::string& argument : arguments) {
      if (!argument.starts_with('-')) stray = fmt::format("'{}'", argument);
    }
    throw UserError(stray + " belongs to no option", fmt::format("shardscope {}", command), remedy);
  } catch (const po::invalid_option_value& error) {
    const std::string name = error.get_option_name();
    throw UserError(fmt::format("'{}' is not a value of {}", values_text(arguments, name), name),
                    fmt::format("shardscope {}", command), "use a number in the range of the option; " + remedy);
  } catch (const po::error& error) {
    throw UserError(error.what(), fmt::format("shardscope {}", command), remedy);
  }
  return values;
}

std::string help_text(std::string_view command, std::string_view what_it_does, const po::options_description& options,
                      std::string_view example) {
  std::ostringstream text;
  text << "shardscope " << command << " [options]\n\n"
       << what_it_does << "\n\n"
       << options << "\nExample:\n  " << example << "\n";
  return text.str();
}

std::vector<int64_t> parse_list(std::string_view text, std::string_view option, int64_t least, int64_t most) {
  std::vector<int64_t> values;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t dots = item.find("..");
    if (dots == std::string_view::npos) {
      const int64_t value = parse_number(item, option, text);
      check_range(value, option, least, most);
      values.push_back(value);
      continue;
    }
    const int64_t first = parse_number(item.substr(0, dots), option, text);
    std::string_view rest = item.substr(dots + 2);
    int64_t factor = 0;
    if (const size_t times = rest.find('x'); times != std::string_view::npos) {
      factor = parse_number(rest.substr(times + 1), option, text);
      check_range(factor, option, 2, 1024);
      rest = rest.substr(0, times);
    }
    const int64_t last = parse_number(rest, option, text);
    check_range(first, option, least, most);
    check_range(last, option, least, most);
    if (last < first || (factor > 0 && first < 1)) {
      throw UserError(fmt::format("'{}' is not ascending", item), option, "write the smaller number first");
    }
    constexpr int64_t kLongest = 4096;
    if (factor == 0 && last - first >= kLongest) {
      throw UserError(fmt::format("'{}' has more than {} values", item, kLongest), option, "use doubling: 1..256x2");
    }
    for (int64_t value = first; value <= last; value = factor > 0 ? value * factor : value + 1) values.push_back(value);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

size_t parse_choice(std::string_view text, std::string_view option, std::span<const std::string_view> known) {
  const auto found = std::find(known.begin(), known.end(), text);
  if (found != known.end()) return static_cast<size_t>(found - known.begin());
  throw UserError(fmt::format("'{}' is not a value of {}", text, option), "command line",
                  fmt::format("use one of: {}", fmt::join(known, ", ")));
}

std::vector<size_t> parse_names(std::string_view text, std::string_view option,
                                std::span<const std::string_view> known) {
  std::vector<size_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    numbers.push_back(parse_choice(text.substr(begin, end - begin), option, known));
    begin = end + 1;
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

uint64_t parse_seed(const std::string& text) {
  uint64_t seed = 0;  // by hand: Boost reads "-1" as 2^64 - 1
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, seed);
  if (code != std::errc() || stop != end) {
    throw UserError(fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", text), "--seed", "use e.g. 1");
  }
  return seed;
}

void check_range(int64_t value, std::string_view option, int64_t least, int64_t most) {
  if (value >= least && value <= most) return;
  throw UserError(fmt::format("{} is out of range", value), option, fmt::format("use {} to {}", least, most));
}

}  // namespace shardscope::launch
