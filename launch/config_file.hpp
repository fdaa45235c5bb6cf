// --config FILE: options of a command in a file, one "name = value" a line, under those of the command line. Rank 0
// reads the file and all ranks get its text, so that they agree even where each host has a file of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/base/error.hpp"
#include "launch/command_line.hpp"
#include "launch/session.hpp"
#include "runtime/report/document.hpp"

namespace shardscope::launch {

struct Setting {
  std::string name;   // a long option without its dashes
  std::string value;  // a switch: "true" or "false"
  std::string where;  // "run.conf:3"
};

/// The lines of a file named `file`: "name = value"; "#" starts a comment at the beginning of a line or after a space.
/// Each name is one of `options` and each value
/// of its type; only an option that is repeatable on the command line may come twice. Throws UserError.
std::vector<Setting> parse_settings(const std::string& text, const std::string& file,
                                    const po::options_description& options);

/// Options in effect, and where those that come from a file were set.
struct Settings {
  po::variables_map values;
  std::map<std::string, std::string> origins;  // name -> Setting::where

  /// Every option in effect, defaults included: name to text, number, truth value or list; without config and help.
  runtime::Json in_effect() const;

  /// The same error, with file and line where the option that it names was set.
  UserError located(const UserError& error) const;

  /// What `read` makes of the values; its errors are located.
  template <typename Read>
  auto with_origins(Read read) const {
    try {
      return read();
    } catch (const UserError& error) {
      throw located(error);
    }
  }
};

/// Command line over file: an option that the command line has is not taken from the file. Throws UserError.
Settings merge_settings(const po::options_description& options, const std::vector<std::string>& arguments,
                        std::string_view command, const std::vector<Setting>& file, const std::string& positional = "");

/// The options of a command, from its command line and the file that --config names; positional: as parse_arguments.
/// Collective. Throws UserError.
Settings command_settings(const po::options_description& options, const std::vector<std::string>& arguments,
                          std::string_view command, Session& session, const std::string& positional = "");

}  // namespace shardscope::launch
