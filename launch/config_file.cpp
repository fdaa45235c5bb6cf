#include "launch/config_file.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <boost/any.hpp>

#include "launch/prompts.hpp"

namespace shardscope::launch {
namespace {

constexpr size_t kMostBytes = 1'000'000;

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

/// A "#" within a word belongs to it: a file may be called so.
std::string without_comment(const std::string& line) {
  size_t at = line.find('#');
  while (at != std::string::npos && at > 0 && line[at - 1] != ' ' && line[at - 1] != '\t') at = line.find('#', at + 1);
  return line.substr(0, at);
}

/// In a file, these would name another file, or do something else than run the command.
bool command_line_only(const std::string& name) {
  return name == "config" || name == "help";
}

const po::option_description& known_option(const Setting& setting, const po::options_description& options) {
  if (command_line_only(setting.name)) {
    throw UserError(fmt::format("'{}' belongs on the command line", setting.name), setting.where, "take the line out");
  }
  std::vector<std::string> names;
  for (const auto& option : options.options()) {
    if (option->long_name() == setting.name) return *option;
    if (!command_line_only(option->long_name())) names.push_back(option->long_name());
  }
  const std::optional<std::string> near = nearest_name(setting.name, names);
  throw UserError(fmt::format("unknown option '{}'", setting.name), setting.where,
                  near ? fmt::format("did you mean {}?", *near) : "use the command's long options, without dashes");
}

void check_value(const Setting& setting, const po::option_description& option) {
  const bool is_switch = option.semantic()->max_tokens() == 0;
  try {
    boost::any parsed;
    option.semantic()->parse(parsed, {setting.value}, /*utf8=*/true);
    if (!is_switch || !setting.value.empty()) return;  // Boost takes an empty switch for true
  } catch (const po::error&) {                         // said below, with its place
  }
  throw UserError(fmt::format("'{}' is not a value of {}", setting.value, setting.name), setting.where,
                  is_switch ? "write true or false" : "use a number in the range of the option");
}

/// Whether a name goes on at `at`: "--tp" is not "--tp-x".
bool is_name_character(const std::string& text, size_t at) {
  return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '-');
}

runtime::Json option_json(const boost::any& value, const std::string& name) {
  if (const auto* text = boost::any_cast<std::string>(&value)) return *text;
  if (const auto* number = boost::any_cast<int64_t>(&value)) return *number;
  if (const auto* number = boost::any_cast<double>(&value)) return *number;
  if (const auto* truth = boost::any_cast<bool>(&value)) return *truth;
  if (const auto* texts = boost::any_cast<std::vector<std::string>>(&value)) return *texts;
  throw BugError(fmt::format("--{} is of a type that no document has", name));
}

bool repeatable(const po::option_description& option) {
  return option.semantic()->is_composing();
}

po::parsed_options parsed(const po::options_description& options, const std::vector<Setting>& settings) {
  po::parsed_options result(&options);
  for (const Setting& setting : settings) result.options.emplace_back(setting.name, std::vector{setting.value});
  return result;
}

std::string read_settings(const std::string& file, Session& session) {
  std::string text = read_text_file(file, [&] { session.world.progress("reading standard input"); });
  if (text.size() <= kMostBytes) return text;
  throw UserError(fmt::format("a configuration of {} bytes", text.size()), file, "use one of up to 1 MB");
}

}  // namespace

std::vector<Setting> parse_settings(const std::string& text, const std::string& file,
                                    const po::options_description& options) {
  std::vector<Setting> settings;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::istringstream lines(text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    line = trimmed(without_comment(line));
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    Setting setting{.name = trimmed(line.substr(0, equals)), .where = fmt::format("{}:{}", file, number)};
    if (equals == std::string::npos || setting.name.empty()) {
      throw UserError("this line is not 'name = value'", setting.where, "write e.g. batch = 1,8 or samples = true");
    }
    setting.value = trimmed(line.substr(equals + 1));
    const po::option_description& option = known_option(setting, options);
    const auto earlier = std::find_if(settings.begin(), settings.end(),
                                      [&](const Setting& other) { return other.name == setting.name; });
    if (earlier != settings.end() && !repeatable(option)) {
      throw UserError(fmt::format("'{}' is set a second time, after {}", setting.name, earlier->where), setting.where,
                      "keep one of the two lines");
    }
    check_value(setting, option);
    settings.push_back(std::move(setting));
  }
  return settings;
}

runtime::Json Settings::in_effect() const {
  runtime::Json options = runtime::Json::object();
  for (const auto& [name, value] : values) {
    if (command_line_only(name)) continue;
    options[name] = option_json(value.value(), name);
  }
  return options;
}

UserError Settings::located(const UserError& error) const {
  const std::string text = error.what();
  for (const auto& [name, origin] : origins) {
    const std::string option = "--" + name;
    size_t at = text.find(option);
    while (at != std::string::npos && is_name_character(text, at + option.size())) at = text.find(option, at + 1);
    if (at == std::string::npos) continue;
    for (const std::string& where : {fmt::format(", {}, ", option), std::string(", command line, ")}) {
      const size_t place = text.find(where);
      if (place == std::string::npos) continue;
      return {text.substr(0, place), fmt::format("{} in {}", name, origin), text.substr(place + where.size())};
    }
  }
  return error;
}

Settings merge_settings(const po::options_description& options, const std::vector<std::string>& arguments,
                        std::string_view command, const std::vector<Setting>& file, const std::string& positional) {
  Settings settings{.values = parse_arguments(options, arguments, command, positional)};
  std::vector<Setting> taken;
  for (const Setting& setting : file) {
    const auto given = settings.values.find(setting.name);
    if (given != settings.values.end() && !given->second.defaulted()) continue;
    taken.push_back(setting);
    settings.origins[setting.name] = setting.where;
  }
  po::store(parsed(options, taken), settings.values);
  return settings;
}

Settings command_settings(const po::options_description& options, const std::vector<std::string>& arguments,
                          std::string_view command, Session& session, const std::string& positional) {
  const po::variables_map typed = parse_arguments(options, arguments, command, positional);
  if (typed.count("config") == 0 || typed["help"].as<bool>()) return {.values = typed};
  const auto file = typed["config"].as<std::string>();
  const std::string text =
      session.world.broadcast_text(session.speaks() ? read_settings(file, session) : "", 0, "configuration file");
  return merge_settings(options, arguments, command, parse_settings(text, file, options), positional);
}

}  // namespace shardscope::launch
