#include "launch/config_file.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <unistd.h>

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;

namespace {

using Words = std::vector<std::string>;

po::options_description some_options() {
  po::options_description options("options");
  options.add_options()                                                 //
      ("batch", po::value<std::string>()->default_value("1"), "")       //
      ("iterations", po::value<int64_t>(), "")                          //
      ("stop", po::value<std::vector<std::string>>()->composing(), "")  //
      ("samples", po::bool_switch(), "")                                //
      ("config", po::value<std::string>(), "")("help,h", po::bool_switch(), "");
  return options;
}

std::vector<Setting> parse(const std::string& text) {
  return parse_settings(text, "run.conf", some_options());
}

Settings merge(const std::string& text, const Words& words) {
  return merge_settings(some_options(), words, "bench", parse(text));
}

struct Scratch {
  std::filesystem::path path;

  explicit Scratch(const std::string& text) {
    std::string name = (std::filesystem::temp_directory_path() / "config-XXXXXX").string();
    const int file = mkstemp(name.data());
    REQUIRE(file >= 0);
    close(file);
    path = name;
    std::ofstream(path) << text;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("parse_settings: names, values, comments, and where each stands") {
  const std::vector<Setting> settings = parse(
      "# how we measure\n"
      "batch = 1,8   # both\n"
      "\n"
      "  iterations=3\r\n"
      "\tsamples = true");
  REQUIRE(settings.size() == 3);
  CHECK(settings[0].name == "batch");
  CHECK(settings[0].value == "1,8");
  CHECK(settings[0].where == "run.conf:2");
  CHECK(settings[1].name == "iterations");
  CHECK(settings[1].value == "3");
  CHECK(settings[1].where == "run.conf:4");
  CHECK(settings[2].value == "true");
  CHECK(parse("stop = a = b").front().value == "a = b");
  CHECK(parse("").empty());
}

TEST_CASE("parse_settings: a # within a word is no comment") {
  CHECK(parse("batch = out#1.json").front().value == "out#1.json");
  CHECK(parse("batch = a#b # c#d").front().value == "a#b");
  CHECK(parse("batch = a\t# c").front().value == "a");
  CHECK(parse("batch = #a").front().value.empty());
  CHECK(parse("#batch = 1\n  # batch = 2\n").empty());
}

TEST_CASE("parse_settings: each fault is named with file and line") {
  CHECK_THROWS_WITH(parse("batch = 1\niteration = 3"),
                    Contains("unknown option 'iteration'") && Contains("run.conf:2") && Contains("iterations?"));
  CHECK_THROWS_WITH(parse("--iterations = 3"), Contains("did you mean iterations?"));
  CHECK_THROWS_WITH(parse("zzzzzzzzzzzz = 3"), Contains("run.conf:1") && !Contains("did you mean"));
  CHECK_THROWS_WITH(parse("iterations = many"), Contains("'many'") && Contains("iterations") && Contains("run.conf:1"));
  CHECK_THROWS_WITH(parse("iterations = 3 4"), Contains("run.conf:1"));
  CHECK_THROWS_WITH(parse("iterations ="), Contains("run.conf:1"));
  CHECK_THROWS_WITH(parse("samples = maybe"), Contains("'maybe'") && Contains("true or false"));
  CHECK_THROWS_WITH(parse("samples ="), Contains("true or false"));
  CHECK_THROWS_WITH(parse("\nsamples"), Contains("run.conf:2") && Contains("name = value"));
  CHECK_THROWS_WITH(parse("= 3"), Contains("name = value"));
  CHECK_THROWS_WITH(parse("[section]"), Contains("name = value"));
  CHECK_THROWS_WITH(parse("batch = 1\n\nbatch = 2"), Contains("run.conf:3") && Contains("run.conf:1"));
  CHECK_THROWS_WITH(parse("config = other.conf"), Contains("command line") && Contains("run.conf:1"));
  CHECK_THROWS_WITH(parse("help = true"), Contains("command line"));
  for (const char* text : {"batch", "x = 1", "iterations = x"}) CHECK_THROWS_AS(parse(text), UserError);
}

TEST_CASE("parse_settings: what is repeatable on the command line is so in a file") {
  const std::vector<Setting> settings = parse("stop = a\nstop = b");
  REQUIRE(settings.size() == 2);
  CHECK(settings[1].value == "b");
}

TEST_CASE("merge_settings: the file stands under the command line and over the defaults") {
  const Settings settings =
      merge("batch = 8\niterations = 3\nsamples = true\nstop = a\nstop = b", {"--iterations", "5"});
  CHECK(settings.values["iterations"].as<int64_t>() == 5);
  CHECK(settings.values["batch"].as<std::string>() == "8");
  CHECK_FALSE(settings.values["batch"].defaulted());
  CHECK(settings.values["samples"].as<bool>());
  CHECK(settings.values["stop"].as<Words>() == Words{"a", "b"});
  CHECK(settings.origins ==
        std::map<std::string, std::string>{{"batch", "run.conf:1"}, {"samples", "run.conf:3"}, {"stop", "run.conf:5"}});
  CHECK(merge("stop = a", {"--stop", "c"}).values["stop"].as<Words>() == Words{"c"});
  CHECK(merge("samples = false", {"--samples"}).values["samples"].as<bool>());
  CHECK_FALSE(merge("samples = false", {}).values["samples"].as<bool>());
  CHECK(merge("", {}).values["batch"].as<std::string>() == "1");
}

TEST_CASE("Settings::in_effect: every option that has a value, wherever it comes from") {
  const runtime::Json none = {{"batch", "1"}, {"samples", false}};
  CHECK(merge("", {}).in_effect() == none);
  const runtime::Json all = {{"batch", "8"}, {"iterations", 5}, {"samples", true}, {"stop", {"a", "b"}}};
  CHECK(merge("batch = 8\niterations = 3\nsamples = true\nstop = a\nstop = b", {"--iterations", "5"}).in_effect() ==
        all);
  po::options_description seconds("options");
  seconds.add_options()("seconds", po::value<double>()->default_value(1.5), "");
  CHECK(merge_settings(seconds, {}, "bench", {}).in_effect() == runtime::Json{{"seconds", 1.5}});
  po::options_description odd("options");
  odd.add_options()("odd", po::value<char>()->default_value('x'), "");
  CHECK_THROWS_AS(merge_settings(odd, {}, "bench", {}).in_effect(), BugError);
}

TEST_CASE("Settings::with_origins: an error says where the value came from") {
  const Settings settings = merge("iterations = 0", {"--batch", "0"});
  const auto out_of_range = [&](const char* option) {
    return settings.with_origins([&]() -> int { throw UserError("0 is out of range", option, "use 1 to 9"); });
  };
  CHECK_THROWS_WITH(out_of_range("--iterations"), "0 is out of range, iterations in run.conf:1, use 1 to 9");
  CHECK_THROWS_WITH(out_of_range("--batch"), "0 is out of range, --batch, use 1 to 9");
  const auto on_command_line = [&](const char* what) {
    return settings.with_origins([&]() -> int { throw UserError(what, "command line", "use x or y"); });
  };
  CHECK_THROWS_WITH(on_command_line("'z' is not a value of --iterations"),
                    "'z' is not a value of --iterations, iterations in run.conf:1, use x or y");
  CHECK_THROWS_WITH(on_command_line("'z' is not a value of --iterations-of"), Contains("command line"));
  CHECK_THROWS_WITH(on_command_line("'z' is not a value of --batch"), Contains("command line"));
  CHECK(settings.with_origins([] { return 7; }) == 7);
}

TEST_CASE("command_settings: rank 0 reads the file") {
  parallel::World world({.use_mpi = false});
  Session session{.world = world, .launcher = {}, .argv = {}};
  const auto settings = [&](const Words& words) { return command_settings(some_options(), words, "bench", session); };

  const Scratch file("iterations = 3\n");
  CHECK(settings({"--config", file.path}).values["iterations"].as<int64_t>() == 3);
  CHECK(settings({"--config", file.path}).origins.at("iterations") == file.path.string() + ":1");
  CHECK(settings({}).values.count("iterations") == 0);
  CHECK_THROWS_WITH(settings({"--config", "/no/such/file"}), Contains("/no/such/file") && Contains("cannot read"));
  CHECK_THROWS_WITH(settings({"--config", "/"}), Contains("cannot read"));
  CHECK(settings({"--config", "/no/such/file", "--help"}).values["help"].as<bool>());  // help needs no file
  const Scratch large(std::string(1'000'001, '#'));
  CHECK_THROWS_WITH(settings({"--config", large.path}), Contains("1 MB"));
  const Scratch largest(std::string(1'000'000, '#'));
  CHECK(settings({"--config", largest.path}).origins.empty());
}
