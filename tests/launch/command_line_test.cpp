#include "launch/command_line.hpp"

#include <array>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;

namespace {

po::options_description some_options() {
  po::options_description options("options");
  options.add_options()("max-tokens", po::value<int64_t>()->default_value(8), "")("prompt", po::value<std::string>(),
                                                                                  "")("special", po::bool_switch(), "");
  return options;
}

}  // namespace

TEST_CASE("parse_list: commas, ranges and doubling") {
  using List = std::vector<int64_t>;
  CHECK(parse_list("1,2,4,8", "--tp", 1, 64) == List{1, 2, 4, 8});
  CHECK(parse_list("1..4", "--tp", 1, 64) == List{1, 2, 3, 4});
  CHECK(parse_list("1..256x2", "--batch", 1, 1000) == List{1, 2, 4, 8, 16, 32, 64, 128, 256});
  CHECK(parse_list("3..100x3", "--batch", 1, 1000) == List{3, 9, 27, 81});
  CHECK(parse_list("8,1..2,8", "--tp", 1, 64) == List{1, 2, 8});
  CHECK(parse_list("5..5", "--tp", 1, 64) == List{5});
}

TEST_CASE("parse_list: what is not a list is refused by option and remedy") {
  for (const char* text : {"", ",", "1,", "a", "1..", "..2", "2..1", "1..8x1", "1..8x", "0", "-1", "65", "1..65", "1.5",
                           "0x10", "99999999999999999999", "1 2", "1..100000000"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_list(text, "--tp", 1, 64), UserError);
  }
  CHECK_THROWS_WITH(parse_list("x", "--tp", 1, 64), Contains("--tp"));
  CHECK_THROWS_WITH(parse_list("65", "--tp", 1, 64), Contains("1 to 64"));
}

TEST_CASE("parse_arguments: an unknown option suggests the nearest") {
  CHECK_THROWS_WITH(parse_arguments(some_options(), {"--max-token", "3"}, "generate"),
                    Contains("did you mean --max-tokens?"));
  CHECK_THROWS_WITH(parse_arguments(some_options(), {"--zzzzzzzzz"}, "generate"), !Contains("did you mean"));
}

TEST_CASE("parse_arguments: wrong, missing and stray values are errors of the user") {
  CHECK_THROWS_AS(parse_arguments(some_options(), {"--max-tokens", "many"}, "generate"), UserError);
  CHECK_THROWS_AS(parse_arguments(some_options(), {"--max-tokens"}, "generate"), UserError);
  CHECK_THROWS_WITH(parse_arguments(some_options(), {"stray"}, "generate"), Contains("'stray'"));
  CHECK_THROWS_AS(parse_arguments(some_options(), {"--prompt", "a", "--prompt", "b"}, "generate"), UserError);
  CHECK(parse_arguments(some_options(), {"--max-tokens=3", "--special"}, "generate")["max-tokens"].as<int64_t>() == 3);
}

TEST_CASE("parse_choice: lists the values that there are") {
  constexpr std::array<std::string_view, 2> kKnown = {"auto", "cpu"};
  CHECK(parse_choice("cpu", "--backend", kKnown) == 1);
  CHECK_THROWS_WITH(parse_choice("cuda", "--backend", kKnown), Contains("auto, cpu"));
}

TEST_CASE("parse_names: each once, in the order of what is known, or what is known") {
  constexpr std::array<std::string_view, 3> kKnown = {"auto", "shm", "mpi"};
  CHECK(parse_names("mpi,shm,mpi", "--way", kKnown) == std::vector<size_t>{1, 2});
  CHECK(parse_names("auto", "--way", kKnown) == std::vector<size_t>{0});
  for (const char* bad : {"", "mpi,", ",mpi", "mpi shm", "MPI", "mpi,ring"}) {
    CHECK_THROWS_WITH(parse_names(bad, "--way", kKnown), Contains("--way") && Contains("use one of: auto, shm, mpi"));
  }
}
