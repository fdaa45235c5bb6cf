#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/report/comparable.hpp"
#include "tests/support/points.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Lines = std::vector<std::string>;

namespace {

SweepOptions an_options() {
  SweepOptions options{.degrees = {1, 2}};
  options.workloads = {{.batch = 1, .prompt_tokens = 8, .output_tokens = 4}};
  return options;
}

Environment an_environment() {
  Environment environment{.host = "alpha", .cpu = "a CPU", .allowed_cores = 8, .backend = "cpu", .threads_per_rank = 1};
  environment.system.kernel = "Linux 6.1";
  environment.build = {.version = "0.1.0", .commit = "abc"};
  environment.mpi = "Open MPI";
  environment.ranks = {{.rank = 0}, {.rank = 1}};
  return environment;
}

/// A report of `scale` as this program writes it.
Json a_report(const SweepOptions& options = an_options(), const ReportBody& body = {}, const char* model = "tiny",
              const Environment& environment = an_environment()) {
  return report_json({.command = "scale", .environment = environment}, open_model({.model = model}), options, body);
}

/// A file of its own that goes away with it.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("shardscope-continue-" + std::to_string(getpid()))) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~ScratchFile() { std::filesystem::remove(path_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Why `text` is not continued by a run that planned `planned`.
std::string refusal(const std::string& text, const Json& planned = a_report()) {
  const ScratchFile file(text);
  try {
    continue_report(file.path(), planned);
  } catch (const UserError& error) {
    const std::string what = error.what();
    return what.find(file.path()) == std::string::npos ? "the file is not named: " + what : what;
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("comparable_key: 16 hex digits, the same for the same run, and the one in the report") {
  const Json report = a_report();
  const std::string key = comparable_key(report);
  CHECK(key.size() == 16);
  CHECK(key.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(key == comparable_key(a_report()));
  CHECK(report["comparable_key"] == key);
  CHECK(comparable_differences(report, a_report()).empty());
}

TEST_CASE("comparable_key: what was found, where, and under which name does not matter") {
  const Json report = a_report();
  ReportBody body{.points = {test::full_point()}, .advice = {"do it"}, .warnings = {"careful"}, .complete = true};
  Environment elsewhere = an_environment();
  elsewhere.host = "beta";
  SweepOptions degrees = an_options();
  degrees.degrees = {1, 2, 4};
  CHECK(comparable_key(a_report(degrees, body, "tiny", elsewhere)) == comparable_key(report));
  Json renamed = report;
  renamed["model"]["name"] = "another name";
  CHECK(comparable_key(renamed) == comparable_key(report));
  CHECK(comparable_differences(renamed, report).empty());
}

TEST_CASE("comparable_key: neither the order of keys nor how a number is written matters") {
  const Json report = a_report();
  const Json sorted = parse_json(document_text(report), "text");  // parse_json sorts
  REQUIRE(sorted["model"].begin().key() != report["model"].begin().key());
  CHECK(comparable_key(sorted) == comparable_key(report));
  CHECK(comparable_differences(sorted, report).empty());
  Json rewritten = report;
  REQUIRE(rewritten["protocol"]["max_seconds"].is_number_float());
  rewritten["protocol"]["max_seconds"] = 30;  // as other tools write 30.0
  CHECK(comparable_key(rewritten) == comparable_key(report));
}

TEST_CASE("comparable_differences: each fact gives another key and a line with its path") {
  const auto against = [](const Json& changed) {
    const Json report = a_report();
    CHECK(comparable_key(changed) != comparable_key(report));
    return comparable_differences(report, changed);
  };
  SweepOptions options = an_options();
  SECTION("model") {
    const Lines lines = against(a_report(options, {}, "smollm2-135m"));
    CHECK(std::find(lines.begin(), lines.end(), "model.layers: 2, 30") != lines.end());
  }
  SECTION("batch") {
    options.workloads[0].batch = 2;
    CHECK(against(a_report(options)) == Lines{"workload.points[0].batch: 1, 2"});
  }
  SECTION("more points") {
    options.workloads.push_back({.batch = 2, .prompt_tokens = 8, .output_tokens = 4});
    CHECK(against(a_report(options)) == Lines{"workload.points: 1 value, 2 values"});
  }
  SECTION("prompt") {
    options.prompt_ids = {1, 2, 3};
    const Lines lines = against(a_report(options));
    REQUIRE(lines.size() == 2);
    CHECK(lines[0] == "workload.prompt: random ids, text, cut or repeated to length");
    const Json one = a_report(options);
    options.prompt_ids = {1, 2, 4};
    CHECK(comparable_key(one) != comparable_key(a_report(options)));
  }
  SECTION("warm-up") {
    options.protocol.warmup = 5;
    CHECK(against(a_report(options)) == Lines{"protocol.warmup_generations: none, 5"});
  }
  SECTION("iterations") {
    const std::string before = options.protocol.stop_rule();
    options.protocol.iterations = 10;
    const std::string rules = "protocol.stop_rule: " + before + ", " + options.protocol.stop_rule();
    CHECK(against(a_report(options)) == Lines{"protocol.iterations: none, 10", rules});
  }
  SECTION("activations") {
    options.activations = kernels::ActivationMode::kF32;
    CHECK(against(a_report(options)) == Lines{"protocol.activations: auto, fp32"});
  }
  SECTION("seed") {
    options.protocol.seed = 7;
    CHECK(against(a_report(options)) == Lines{"workload.seed: 0, 7", "protocol.order_seed: 0, 7"});
  }
  SECTION("schema") {
    Json later = a_report();
    later["schema"] = "shardscope.report/2";
    CHECK(against(later) == Lines{"schema: shardscope.report/1, shardscope.report/2"});
  }
  SECTION("a fact that the other does not have, even where it is null") {
    Json without = a_report();
    without["workload"].erase("prompt_hash");
    CHECK(against(without) == Lines{"workload.prompt_hash: none, absent"});
  }
}

TEST_CASE("machine_differences: another device of a rank that both runs have") {
  Environment two = an_environment();
  two.devices = {{.rank = 0, .name = "A", .uuid = "GPU-0", .pci_bus_id = "0000:01:00.0"},
                 {.rank = 1, .name = "A", .uuid = "GPU-1", .pci_bus_id = "0000:02:00.0"}};
  Environment other = two;
  other.devices[1].uuid = "GPU-2";
  const auto report = [](const Environment& environment) { return a_report(an_options(), {}, "tiny", environment); };
  CHECK(machine_differences(report(two), report(two)).empty());
  CHECK(machine_differences(report(two), report(other)) == Lines{"rank 1's device, uuid: GPU-1, GPU-2"});
  other.devices.pop_back();  // fewer ranks, on the same devices
  CHECK(machine_differences(report(two), report(other)).empty());
}

TEST_CASE("machine_differences, environment_differences: one line for each fact that changed") {
  const Json here = a_report();
  CHECK(environment_differences(here, here).empty());
  CHECK(machine_differences(here, here).empty());
  Environment there = an_environment();
  there.host = "beta";
  there.cpu = "";
  there.allowed_cores = 4;
  there.threads_per_rank = 2;
  there.backend = "cuda";
  there.peak_gb_per_s = 100;
  there.build = {.version = "0.2.0", .commit = "def"};
  there.mpi = "MPICH";
  there.system.kernel = "Linux 6.2";
  there.ranks = {{.rank = 0}};
  there.system.load_average = 3;  // changes all the time
  there.time = "2030-01-01T00:00:00Z";
  SweepOptions options = an_options();
  options.communicator = parallel::CommunicatorKind::kShm;
  const Json other = a_report(options, {}, "tiny", there);
  CHECK(machine_differences(here, other) == Lines{"cpu: a CPU, none", "allowed_cores: 8, 4", "threads_per_rank: 1, 2",
                                                  "backend: cpu, cuda", "peak_gb_per_s: none, 100.0",
                                                  "allreduce: auto, shm"});
  CHECK(environment_differences(here, other) == Lines{"host: alpha, beta", "version: 0.1.0, 0.2.0", "commit: abc, def",
                                                      "mpi: Open MPI, MPICH", "kernel: Linux 6.1, Linux 6.2",
                                                      "ranks: 2, 1"});
}

TEST_CASE("comparable_key: the all-reduce asked for is not in it") {
  SweepOptions options = an_options();
  options.communicator = parallel::CommunicatorKind::kShm;
  CHECK(comparable_key(a_report(options)) == comparable_key(a_report()));
}

TEST_CASE("comparable_key: of a rehearsal the all-reduce times are in it, and not their file's name") {
  const auto rehearsed = [](const char* file, double us) {
    topology::Topology machine;
    for (const int64_t bytes : {1024, 16384}) {
      machine.measurements.push_back({.kind = topology::Measurement::Kind::kAllReduce,
                                      .gpu_count = 2,
                                      .bytes = bytes,
                                      .time_us = bytes == 1024 ? us : 40});
    }
    SweepOptions options = an_options();
    options.rehearsal =
        RehearsalOptions{.times = topology::CollectiveTimes(machine), .topology = file, .backend_at = {}};
    return a_report(options);
  };
  const Json report = rehearsed("a.txt", 10);
  CHECK(report["protocol"]["rehearsed_topology"] == "a.txt");
  CHECK(report["protocol"]["rehearsed_collectives"] ==
        Json::array({Json{{"ranks", 2}, {"bytes", {1024, 16384}}, {"time_us", {10.0, 40.0}}}}));
  CHECK(comparable_key(rehearsed("b.txt", 10)) == comparable_key(report));
  CHECK(comparable_differences(report, rehearsed("b.txt", 10)).empty());
  CHECK(comparable_key(rehearsed("a.txt", 11)) != comparable_key(report));
  CHECK(comparable_differences(report, rehearsed("a.txt", 11)) ==
        Lines{"protocol.rehearsed_collectives[0].time_us[0]: 10.0, 11.0"});
  SweepOptions nothing = an_options();
  nothing.rehearsal = RehearsalOptions{};
  CHECK(a_report(nothing)["protocol"]["rehearsed_collectives"] == Json::array());
  CHECK(comparable_key(a_report(nothing)) != comparable_key(report));
}

TEST_CASE("comparable_key: of what ran it is as if nobody had ever rehearsed") {
  Json report = a_report();
  const std::string key = comparable_key(report);
  CHECK(report["protocol"]["rehearsed_collectives"].is_null());
  report["protocol"].erase("rehearsed_collectives");
  CHECK(comparable_key(report) == key);
}

TEST_CASE("continue_report: takes what is whole, and the first visit of what is not") {
  PointResult ok = test::full_point();
  ok.workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 4};
  const PointResult lost{.tp = 4, .status = PointStatus::kOutOfMemory};
  const PointResult wrong{.tp = 8, .status = PointStatus::kInvalid};
  PointResult half = test::a_point(16, 5);
  half.status = PointStatus::kIncomplete;
  half.generations = 1;
  half.samples = {{.pass = 0, .ttft_ms = 5.0, .tpot_ms = 5.0, .latency_ms = 20.0, .itl_ms = {5, 5, 5}}};
  PointResult empty = test::a_point(15, 5);  // its samples are lost
  empty.status = PointStatus::kIncomplete;
  const ReportBody body{.points = {ok, lost, half, wrong, empty}};
  const ScratchFile file(document_text(a_report(an_options(), body)));
  const Continued continued = continue_report(file.path(), a_report());
  REQUIRE(continued.points.size() == 2);
  CHECK(point_json(continued.points[0], false) == point_json(ok, false));
  CHECK(continued.points[1].status == PointStatus::kIncomplete);
  CHECK(continued.points[1].samples.size() == 1);
  CHECK(continued.points[1].samples[0].itl_ms == std::vector<double>{5, 5, 5});
  CHECK(continued.warnings.empty());
}

TEST_CASE("continue_report: points of another machine are refused, another host of the kind is a warning") {
  const ReportBody body{.points = {test::a_point(1, 5)}};
  Environment there = an_environment();
  there.host = "beta";
  {
    const ScratchFile file(document_text(a_report(an_options(), body, "tiny", there)));
    const Continued continued = continue_report(file.path(), a_report());
    REQUIRE(continued.warnings.size() == 1);
    CHECK(contains(continued.warnings[0], "the 1 point of " + file.path()));
    CHECK(contains(continued.warnings[0], "host: beta, alpha"));
    const ScratchFile none(document_text(a_report(an_options(), {}, "tiny", there)));
    CHECK(continue_report(none.path(), a_report()).warnings.empty());
  }
  there.threads_per_rank = 4;
  CHECK(contains(refusal(document_text(a_report(an_options(), body, "tiny", there))), "threads_per_rank: 4, 1"));
  SweepOptions options = an_options();
  options.communicator = parallel::CommunicatorKind::kMpi;
  CHECK(contains(refusal(document_text(a_report(options, body))), "allreduce: mpi, auto"));
}

TEST_CASE("continue_report: what is no such report is refused with the reason") {
  CHECK_THROWS_AS(continue_report("/no/such/report.json", a_report()), UserError);
  CHECK(contains(refusal("not json"), "not valid JSON"));
  CHECK(contains(refusal(""), "not valid JSON"));
  CHECK(contains(refusal("[1, 2]"), "no JSON object"));
  CHECK(contains(refusal("{}"), "its schema is none, not shardscope.report/1"));
  Json report = a_report();
  report["schema"] = "shardscope.generate/1";
  CHECK(contains(refusal(document_text(report)), "its schema is shardscope.generate/1, not shardscope.report/1"));
  report = a_report();
  report["command"] = "bench";
  CHECK(contains(refusal(document_text(report)), "another command: bench, not scale"));
  report = a_report();
  report["results"] = nullptr;
  CHECK(contains(refusal(document_text(report)), "no list of results"));
  report["results"] = Json::array({Json::object()});
  CHECK(contains(refusal(document_text(report)), ": results[0]"));
  const std::string cut = document_text(a_report());
  CHECK(contains(refusal(cut.substr(0, cut.size() / 2)), "not valid JSON"));
}

TEST_CASE("continue_report: a run with other options is refused, and the first differences are named") {
  SweepOptions other = an_options();
  other.protocol.iterations = 3;
  other.protocol.seed = 5;
  other.workloads[0].batch = 2;
  const std::string why = refusal(document_text(a_report(other)));
  CHECK(contains(why,
                 "measured otherwise (there, here): workload.points[0].batch: 2, 1; workload.seed: 5, 0; "
                 "protocol.iterations: 3, none; and 2 more"));
  CHECK(contains(why, "use the same model and options"));
}

TEST_CASE("continue_report: points of one degree differ by where their ranks worked") {
  ReportBody body{.points = {test::a_point(2, 5), test::a_point(2, 6)}};
  body.points[1].group = {.placement = topology::Placement::kWorst, .places = {0, 2}};
  const ScratchFile file(document_text(a_report(an_options(), body)));
  const Continued continued = continue_report(file.path(), a_report());
  REQUIRE(continued.points.size() == 2);
  CHECK(continued.points[0].group == topology::linear_group(2));
  CHECK(continued.points[1].group == body.points[1].group);
  body.points.push_back(test::a_point(2, 7));
  body.points[2].group = {.placement = topology::Placement::kBest, .places = {0, 1}};  // where linear is
  CHECK(contains(refusal(document_text(a_report(an_options(), body))), "results[2]"));
}

TEST_CASE("continue_report: a point that stands twice is refused") {
  const ReportBody body{.points = {{.tp = 1}, {.tp = 1}}};
  CHECK(contains(refusal(document_text(a_report(an_options(), body))), "results[1]"));
}
