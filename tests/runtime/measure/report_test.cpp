#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/report_file.hpp"
#include "tests/support/points.hpp"

using namespace shardscope;
using namespace shardscope::runtime;

namespace {

std::filesystem::path scratch_file(const char* name) {
  return std::filesystem::temp_directory_path() / (std::string(name) + std::to_string(getpid()));
}

std::string content(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("report_json: every field of the contract is there, unknown ones null") {
  const OpenedModel model = open_model({.model = "tiny"});
  const SweepOptions options{.workloads = {{.batch = 1, .prompt_tokens = 8, .output_tokens = 4}}};
  ReportBody body{.points = test::with_speedups({test::a_point(1, 10), test::a_point(2, 6)})};
  body.advice = {"advice"};
  body.warnings = {"warning"};
  const Json in_effect = {{"batch", "1,8"}, {"iterations", 3}, {"max-seconds", 1.5}, {"samples", false}};
  const Json document =
      report_json({.command = "scale", .argv = {"shardscope", "scale"}, .options = in_effect}, model, options, body);
  for (const char* key : {"schema", "command", "argv", "options", "complete", "environment", "topology", "model",
                          "workload", "protocol", "comparable_key", "results", "advice", "warnings"}) {
    CHECK(document.contains(key));
  }
  CHECK(document["schema"] == "shardscope.report/1");
  CHECK(document["command"] == "scale");
  CHECK(document["argv"] == Json::array({"shardscope", "scale"}));
  CHECK(document["options"] == in_effect);
  CHECK(document["complete"] == false);
  CHECK(document["topology"].is_null());
  CHECK(document["advice"] == Json::array({"advice"}));
  CHECK(document["warnings"] == Json::array({"warning"}));
  REQUIRE(document["results"].size() == 2);
  CHECK(document["results"][1] == point_json(body.points[1], false));
  CHECK(document["results"][1]["speedup"].get<double>() == Approx(10.1 / 6.1));
  CHECK(document["results"][1]["samples"].is_null());
}

TEST_CASE("report_json: samples on demand, complete when it is") {
  ReportBody body{.points = {test::full_point()}, .complete = true};
  const Json document = report_json({.command = "bench", .samples = true}, open_model({.model = "tiny"}), {}, body);
  CHECK(document["complete"] == true);
  CHECK(document["results"][0]["samples"].size() == 2);
}

TEST_CASE("report_json: steady if no warm-up ended unsteady, null where none can tell") {
  const OpenedModel model = open_model({.model = "tiny"});
  const auto steady_of = [&](const std::vector<std::vector<WarmUp>>& warm_ups) {
    ReportBody body;
    for (const std::vector<WarmUp>& visits : warm_ups) {
      body.points.push_back(test::a_point(1, 5));
      body.points.back().warm_ups = visits;
    }
    return report_json({.command = "scale"}, model, {}, body)["protocol"]["steady"];
  };
  const WarmUp unknown{1, std::nullopt, std::nullopt};
  const WarmUp yes{6, 0.001, true};
  const WarmUp no{30, 0.1, false};
  CHECK(steady_of({}).is_null());
  CHECK(steady_of({{unknown}, {unknown, unknown}}).is_null());
  CHECK(steady_of({{unknown, yes}, {yes}}) == true);
  CHECK(steady_of({{yes, yes}, {yes, no}, {yes}}) == false);
  CHECK(steady_of({{no}, {unknown, yes}}) == false);
}

TEST_CASE("protocol_json, workload_json: what was asked for, null where a rule decides") {
  SweepOptions options{.workloads = {{.batch = 2, .prompt_tokens = 8, .output_tokens = 4}}};
  options.protocol.seed = 7;
  Json protocol = protocol_json(options);
  CHECK(protocol["warmup_generations"].is_null());
  CHECK(protocol["iterations"].is_null());
  CHECK(protocol["stop_rule"] == options.protocol.stop_rule());
  CHECK(protocol["passes"] == 2);
  CHECK(protocol["noise_bound"] == options.protocol.noise_bound);
  CHECK(protocol["max_seconds"] == options.protocol.max_seconds);
  CHECK(protocol["order_seed"] == 7);
  CHECK(protocol["activations"] == "auto");
  CHECK(workload_json(options) == Json{{"points", {{{"batch", 2}, {"prompt_tokens", 8}, {"output_tokens", 4}}}},
                                       {"prompt", "random ids"},
                                       {"prompt_hash", nullptr},
                                       {"arrival", "static batch"},
                                       {"seed", 7}});
  options.protocol.warmup = 2;
  options.protocol.iterations = 1;
  options.activations = kernels::ActivationMode::kInt8;
  options.prompt_ids = {1, 2};
  protocol = protocol_json(options);
  CHECK(protocol["warmup_generations"] == 2);
  CHECK(protocol["iterations"] == 1);
  CHECK(protocol["stop_rule"] == options.protocol.stop_rule());
  CHECK(protocol["passes"] == 1);
  CHECK(protocol["activations"] == "int8");
  CHECK(workload_json(options)["prompt"] == "text, cut or repeated to length");
  CHECK(workload_json(options)["prompt_hash"].get<std::string>().size() == 16);
}

TEST_CASE("model_json: quantisation is null where there is none") {
  const auto quantisation = [](kernels::DType dtype) {
    return model_json(open_model({.model = "tiny", .dtype = dtype}), {})["quantisation"];
  };
  for (const auto& [dtype, bits] : {std::pair(kernels::DType::kBF16, 16), {kernels::DType::kF16, 16}}) {
    CHECK(quantisation(dtype) == Json{{"scheme", "none"},
                                      {"bits_nominal", bits},
                                      {"bits_effective", 16.0},
                                      {"group", nullptr},
                                      {"granularity", nullptr},
                                      {"algorithm", nullptr}});
  }
  CHECK(quantisation(kernels::DType::kF32)["bits_nominal"] == 32);
  CHECK(quantisation(kernels::DType::kF32)["bits_effective"] == 32.0);
}

TEST_CASE("document_text: bytes that are not UTF-8 do not stop a report") {
  CHECK(document_text(Json{{"text", "caf\xc3"}}) == "{\n \"text\": \"caf\"\n}\n");
}

TEST_CASE("report file: the final name appears only when the run is complete") {
  const auto path = scratch_file("shardscope-report-");
  const std::filesystem::path partial = path.string() + ".partial";
  {
    ReportFile file(path.string(), EarlierPartial{});
    CHECK_FALSE(std::filesystem::exists(path));
    file.write_partial("one");
    CHECK(content(partial) == "one");
    CHECK_FALSE(std::filesystem::exists(path));
    file.write_partial("2");
    CHECK(content(partial) == "2");
    file.finish("two");
  }
  CHECK(content(path) == "two");
  CHECK_FALSE(std::filesystem::exists(partial));
  std::filesystem::remove(path);
}

TEST_CASE("report file: points of an earlier run are replaced only where that is meant") {
  const auto path = scratch_file("shardscope-report-");
  const std::filesystem::path partial = partial_path_of(path.string());
  CHECK(partial == path.string() + ".partial");
  std::ofstream(partial) << "earlier";
  const auto refusal = [&](const EarlierPartial& earlier) -> std::string {
    try {
      ReportFile(path.string(), earlier);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal({}) == partial.string() + " holds points of an earlier run, " + path.string() + ", remove it");
  CHECK(refusal({.remedy = "go on"}) ==
        partial.string() + " holds points of an earlier run, " + path.string() + ", go on");
  CHECK(content(partial) == "earlier");
  SECTION("a report without a partial file leaves it") {
    ReportFile file(path.string());
    CHECK_FALSE(file.partial_path().has_value());
    file.write_partial("new");
    file.finish("whole");
    CHECK(content(partial) == "earlier");
    CHECK(content(path) == "whole");
  }
  SECTION("going on replaces it, at the first point and not before") {
    ReportFile file(path.string(), {.replaced = true});
    CHECK(content(partial) == "earlier");
    file.write_partial("new");
    CHECK(content(partial) == "new");
  }
  SECTION("an empty one is no points") {
    std::ofstream(partial, std::ios::trunc).close();
    CHECK(refusal({}).empty());
  }
  std::filesystem::remove(partial);
  std::filesystem::remove(path);
}

TEST_CASE("report file: where nothing can be written, the earlier text stays and nothing is left over") {
  const auto folder = scratch_file("shardscope-folder-");
  std::filesystem::create_directory(folder);
  ReportFile file((folder / "report").string(), EarlierPartial{});
  std::filesystem::create_directory(folder / "report.partial");  // a rename onto a folder fails, also for root
  CHECK_THROWS_AS(file.write_partial("text"), SystemError);
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);
  std::filesystem::remove_all(folder);
  CHECK_THROWS_AS(file.write_partial("text"), SystemError);
  CHECK_THROWS_AS(file.finish("text"), SystemError);
}

TEST_CASE("report file: a link is followed, a pipe or device is written to and stays what it is") {
  const auto real = scratch_file("shardscope-real-");
  const auto link = scratch_file("shardscope-link-");
  std::ofstream(real) << "old";
  std::filesystem::create_symlink(real, link);
  const std::string partial = std::filesystem::canonical(real).string() + ".partial";
  CHECK(partial_path_of(link.string()) == partial);
  CHECK(ReportFile(link.string(), EarlierPartial{}).partial_path() == partial);
  ReportFile(link.string()).finish("new");
  CHECK(std::filesystem::is_symlink(link));
  CHECK(content(real) == "new");
  std::filesystem::remove(link);
  std::filesystem::remove(real);
  ReportFile device("/dev/null", EarlierPartial{});
  CHECK_FALSE(device.partial_path().has_value());
  device.write_partial("part");
  device.finish("all");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  CHECK_FALSE(std::filesystem::exists("/dev/null.partial"));
  CHECK_THROWS_AS(ReportFile("/dev/full").finish("all"), SystemError);
  CHECK_THROWS_AS(ReportFile(std::string(300, 'x')), UserError);
}

TEST_CASE("report file: a folder that does not exist is refused before anything is measured") {
  CHECK_THROWS_AS(ReportFile("/no/such/folder/report.json"), UserError);
  CHECK_THROWS_AS(ReportFile("/tmp"), UserError);
}

TEST_CASE("shards_json: ranges are half-open and memory is there") {
  const OpenedModel model = open_model({.model = "smollm2-135m"});
  const Json document = shards_json(model, {2, 5}, {.batch = 1, .prompt_tokens = 8, .output_tokens = 8},
                                    {.slots = 1, .max_positions = 16});
  CHECK(document["schema"] == "shardscope.shards/1");
  REQUIRE(document["plans"].size() == 2);
  const Json& first = document["plans"][0]["ranks"][0];
  CHECK(first["query_heads"] == Json::array({0, 5}));
  CHECK(first["kv_heads"] == Json::array({0, 2}));
  CHECK(first["ffn"] == Json::array({0, 768}));
  CHECK(first["memory_bytes"]["weights"].get<int64_t>() > 0);
  CHECK(document["plans"][1]["ranks"].size() == 5);
}
