#include "launch/sweep_options.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "kernels/base/error.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;

namespace {

using Words = std::vector<std::string>;

constexpr SweepDefaults kSome{.command = "some",
                              .powers_of_two = true,
                              .protocol = {.least_generations = 12, .noise_bound = 0.02, .max_seconds = 60}};

po::variables_map values_of(const Words& words, const SweepDefaults& defaults = kSome) {
  return parse_arguments(sweep_option_list(defaults), words, defaults.command);
}

/// Of a run of one rank with the model `tiny`.
SweepArguments arguments_of(Words words, const SweepDefaults& defaults = kSome) {
  words.insert(words.end(), {"--model", "tiny"});
  parallel::World world({.use_mpi = false});
  Session session{.world = world, .launcher = {}, .argv = {}};
  return sweep_arguments(values_of(words, defaults), defaults, session);
}

struct Folder {
  std::filesystem::path path;

  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sweep-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }

  std::string file(const std::string& name) const { return (path / name).string(); }
};

}  // namespace

TEST_CASE("sweep_degrees: powers of two and the number of ranks, or that alone") {
  using List = std::vector<int>;
  SweepDefaults alone = kSome;
  alone.powers_of_two = false;
  const auto degrees = [](const SweepDefaults& defaults, const Words& words, int ranks, bool dry_run = false) {
    return sweep_degrees(values_of(words, defaults), defaults, ranks, dry_run);
  };
  CHECK(degrees(kSome, {}, 1) == List{1});
  CHECK(degrees(kSome, {}, 4) == List{1, 2, 4});
  CHECK(degrees(kSome, {}, 6) == List{1, 2, 4, 6});
  CHECK(degrees(alone, {}, 6) == List{6});
  CHECK(degrees(alone, {"--tp", "1..3"}, 6) == List{1, 2, 3});
  CHECK_THROWS_WITH(degrees(kSome, {"--tp", "1,8"}, 6), Contains("6 ranks started, --tp 8"));
  CHECK(degrees(kSome, {"--tp", "1,8"}, 1, /*dry_run=*/true) == List{1, 8});
  CHECK_THROWS_WITH(degrees(kSome, {"--tp", "0"}, 6), Contains("--tp"));
}

TEST_CASE("sweep_arguments: workloads are all combinations, each once") {
  const SweepArguments arguments =
      arguments_of({"--batch", "1,4,1", "--prompt-tokens", "8,16", "--output-tokens", "4", "--tp", "1"});
  const std::vector<runtime::Workload>& workloads = arguments.sweep.workloads;
  CHECK(workloads == std::vector<runtime::Workload>{{.batch = 1, .prompt_tokens = 8, .output_tokens = 4},
                                                    {.batch = 4, .prompt_tokens = 8, .output_tokens = 4},
                                                    {.batch = 1, .prompt_tokens = 16, .output_tokens = 4},
                                                    {.batch = 4, .prompt_tokens = 16, .output_tokens = 4}});
  CHECK(arguments_of({}).sweep.workloads ==
        std::vector<runtime::Workload>{{.batch = 1, .prompt_tokens = 512, .output_tokens = 128}});
}

TEST_CASE("sweep_arguments: the command's protocol unless options say otherwise") {
  const runtime::Protocol defaults = arguments_of({}).sweep.protocol;
  CHECK_FALSE(defaults.warmup);
  CHECK_FALSE(defaults.iterations);
  CHECK(defaults.least_generations == 12);
  CHECK(defaults.noise_bound == 0.02);
  CHECK(defaults.max_seconds == 60);
  CHECK(defaults.seed == 0);
  const runtime::Protocol given =
      arguments_of({"--warmup", "2", "--iterations", "5", "--max-seconds", "1.5", "--seed", "7"}).sweep.protocol;
  CHECK(given.warmup == 2);
  CHECK(given.iterations == 5);
  CHECK(given.max_seconds == 1.5);
  CHECK(given.seed == 7);
}

TEST_CASE("sweep_arguments: placements, each once, linear unless others are named") {
  using topology::Placement;
  CHECK(arguments_of({}).placements == std::vector{Placement::kLinear});
  CHECK(arguments_of({"--placement", "worst,best"}).placements == std::vector{Placement::kBest, Placement::kWorst});
  CHECK(arguments_of({"--placement", "linear,worst,worst"}).placements ==
        std::vector{Placement::kLinear, Placement::kWorst});
}

TEST_CASE("sweep_arguments: peaks are unknown unless given") {
  CHECK_FALSE(arguments_of({}).sweep.peaks.gb_per_s);
  CHECK_FALSE(arguments_of({}).sweep.peaks.tflops);
  const runtime::Peaks peaks = arguments_of({"--peak-bandwidth", "200", "--peak-tflops", "2.5"}).sweep.peaks;
  CHECK(peaks.gb_per_s == 200);
  CHECK(peaks.tflops == 2.5);
}

TEST_CASE("sweep_arguments: values that cannot be are refused by option") {
  for (const auto& [option, value] : {std::pair{"--warmup", "0"},
                                      {"--iterations", "0"},
                                      {"--max-seconds", "0"},
                                      {"--max-seconds", "-1"},
                                      {"--max-seconds", "nan"},
                                      {"--max-seconds", "inf"},
                                      {"--peak-bandwidth", "0"},
                                      {"--peak-tflops", "-2"},
                                      {"--peak-tflops", "nan"},
                                      {"--batch", "0"},
                                      {"--placement", "nearest"},
                                      {"--placement", ""},
                                      {"--progress", "sometimes"}}) {
    CAPTURE(option, value);
    CHECK_THROWS_AS(arguments_of({option, value}), UserError);
    CHECK_THROWS_WITH(arguments_of({option, value}), Contains(option));
  }
  CHECK_THROWS_WITH(arguments_of({"--samples"}), Contains("--json"));
  CHECK_THROWS_WITH(arguments_of({"--dry-run", "--csv", "x"}), Contains("--csv"));
  CHECK_THROWS_WITH(arguments_of({"--dry-run", "--resume", "x"}), Contains("--resume"));
  CHECK_THROWS_WITH(arguments_of({"--dry-run", "--html", "x"}), Contains("--html"));
  CHECK_THROWS_WITH(arguments_of({"--html", ""}), Contains("--html"));
  CHECK(arguments_of({"--samples", "--json", "x"}).samples);
  CHECK(arguments_of({"--samples", "--html", "x"}).files.html == "x");
}

TEST_CASE("check_files: reports do not overwrite each other, or what is read") {
  const Folder folder;
  const std::string json = folder.file("r.json");
  const std::string csv = folder.file("r.csv");
  CHECK_NOTHROW(check_files({}));
  CHECK_NOTHROW(check_files({.json = json, .csv = csv}));
  CHECK_NOTHROW(check_files({.json = "-", .csv = csv}));
  CHECK_NOTHROW(check_files({.json = json, .csv = "-"}));
  CHECK_THROWS_WITH(check_files({.json = "-", .csv = "-"}), Contains("standard output"));
  CHECK_THROWS_AS(check_files({.json = json, .csv = json}), UserError);
  CHECK_THROWS_AS(check_files({.json = json, .csv = folder.file("./r.json")}), UserError);
  CHECK_THROWS_AS(check_files({.json = json, .csv = json + ".partial"}), UserError);
  CHECK_THROWS_AS(check_files({.json = csv + ".partial", .csv = csv}), UserError);

  std::ofstream(json) << "{}";
  std::filesystem::create_symlink(json, folder.file("link"));
  CHECK_THROWS_AS(check_files({.json = json, .csv = folder.file("link")}), UserError);
  std::filesystem::create_hard_link(json, folder.file("hard"));
  CHECK_THROWS_AS(check_files({.json = json, .csv = folder.file("hard")}), UserError);
}

TEST_CASE("check_files: a page is a file of its own") {
  const Folder folder;
  const std::string html = folder.file("r.html");
  CHECK_NOTHROW(check_files({.json = "-", .html = html}));
  CHECK_NOTHROW(check_files({.json = folder.file("r.json"), .csv = folder.file("r.csv"), .html = html}));
  CHECK_THROWS_WITH(check_files({.html = "-"}), Contains("--html -") && Contains("name a file"));
  CHECK_THROWS_WITH(check_files({.json = html, .html = html}), Contains("--json and --html would overwrite"));
  CHECK_THROWS_WITH(check_files({.csv = html, .html = html}), Contains("--csv and --html would overwrite"));
  CHECK_THROWS_AS(check_files({.json = html, .html = html + ".partial"}), UserError);
  CHECK_THROWS_WITH(check_files({.resume = html, .html = html}), Contains("--html") && Contains("--resume reads"));
}

TEST_CASE("check_files: going on writes where the earlier report stands, as JSON only") {
  const Folder folder;
  const std::string json = folder.file("r.json");
  const std::string partial = json + ".partial";
  CHECK_NOTHROW(check_files({.json = json, .csv = "", .resume = partial}));
  CHECK_NOTHROW(check_files({.json = json, .csv = "", .resume = json}));
  CHECK_NOTHROW(check_files({.json = "", .csv = "", .resume = partial}));
  CHECK_NOTHROW(check_files({.json = json, .csv = folder.file("r.csv"), .resume = partial}));
  CHECK_THROWS_WITH(check_files({.json = "", .csv = json, .resume = partial}), Contains("--resume"));
  CHECK_THROWS_WITH(check_files({.json = "", .csv = partial, .resume = partial}), Contains("--resume"));
  CHECK_THROWS_WITH(check_files({.json = "", .csv = json, .resume = json}), Contains("--resume"));
}

TEST_CASE("sweep_option_list: the help of --max-seconds says what is measured whatever the limit") {
  const po::options_description options = sweep_option_list(kSome);
  const std::string& help = options.find("max-seconds", /*approx=*/false).description();
  CHECK_THAT(help, Contains("at least 3 generations to warm up") && Contains("1 that is measured"));
}

TEST_CASE("check_lengths: prompt and output must fit the model's context") {
  runtime::SweepOptions sweep;
  sweep.workloads = {{.batch = 1, .prompt_tokens = 6, .output_tokens = 4}};
  runtime::ModelConfig config;
  config.max_positions = 10;
  CHECK_NOTHROW(check_lengths(sweep, config));
  config.max_positions = 9;
  CHECK_THROWS_WITH(check_lengths(sweep, config), Contains("6 prompt + 4 output tokens") && Contains("9"));
}
