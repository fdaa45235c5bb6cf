// Command lines: parsing with errors that help, number lists, and help texts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/program_options.hpp>

namespace shardscope::launch {

namespace po = boost::program_options;

/// Arguments of a command to values. positional: the option that words without one belong to; empty: there is none.
/// Throws UserError for an unknown option (naming the nearest), a value that is not of the option's type, a missing
/// value, or an argument that belongs to no option.
po::variables_map parse_arguments(const po::options_description& options, const std::vector<std::string>& arguments,
                                  std::string_view command, const std::string& positional = "");

/// Help of a command: usage, what it does, options, one example.
std::string help_text(std::string_view command, std::string_view what_it_does, const po::options_description& options,
                      std::string_view example);

/// "1,2,4,8", "1..8", or "1..256x2" (doubling; any factor from 2), also mixed by commas. Values ascending and distinct,
/// each from `least` to `most`. Throws UserError naming the option.
std::vector<int64_t> parse_list(std::string_view text, std::string_view option, int64_t least, int64_t most);

/// The value among `known` that `text` names exactly; throws UserError listing them.
size_t parse_choice(std::string_view text, std::string_view option, std::span<const std::string_view> known);

/// "shm,mpi": numbers among `known` of the names in a list by commas, each once, in their order there. Throws UserError
/// listing what is known.
std::vector<size_t> parse_names(std::string_view text, std::string_view option,
                                std::span<const std::string_view> known);

/// A whole number from 0 to 2^64 - 1. Throws UserError naming --seed.
uint64_t parse_seed(const std::string& text);

/// The known name that is nearest to `text` by edit distance, if any is near enough to be meant.
std::optional<std::string> nearest_name(std::string_view text, const std::vector<std::string>& known);

/// Throws UserError unless least <= value <= most.
void check_range(int64_t value, std::string_view option, int64_t least, int64_t most);

}  // namespace shardscope::launch
