#include "tests/runtime/report_page/made_up_reports.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "runtime/measure/attribution.hpp"
#include "runtime/measure/figures.hpp"
#include "tests/runtime/report_page/made_up_points.hpp"
#include "topology/drawing.hpp"
#include "topology/read/reading.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::test {
namespace {

using namespace runtime;

Environment gpu_environment(int ranks) {
  Environment environment;
  environment.time = "2026-03-01T12:00:00Z";
  environment.host = "node17";
  environment.cpu = "AMD EPYC 9654 96-Core Processor";
  environment.allowed_cores = 96;
  environment.backend = "cuda: compute capability 8.0";
  environment.cuda = "13.0";
  environment.nccl = "2.27.3";
  environment.mpi = "Open MPI 4.1.4";
  environment.launcher = "mpirun";
  environment.build = {.version = "0.1.0",
                       .commit = "0000000",
                       .compiler = "g++ 12.2.0",
                       .build_type = "Release",
                       .libraries = {{"fmt", "9.1.0"}}};
  environment.threads_per_rank = 1;
  environment.peak_gb_per_s = kMadeUpPeakGbPerS;
  environment.peak_tflops = 312;
  for (int rank = 0; rank < ranks; ++rank) {
    environment.devices.push_back({.rank = rank,
                                   .ordinal = rank,
                                   .name = "NVIDIA A100-SXM4-80GB",
                                   .memory_bytes = 85'000'000'000,
                                   .multiprocessors = 108});
    environment.ranks.push_back(
        {.rank = rank, .host = "node17", .device = "GPU-0", .launcher_cores = {rank}, .cores = {rank}});
  }
  environment.variables = {{"NCCL_DEBUG", "WARN"}};
  return environment;
}

Json gpu_topology() {
  const std::filesystem::path file =
      std::filesystem::path(SHARDSCOPE_TEST_DATA) / "topologies/nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt";
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return topology::topology_json(topology::read_topology({.text = text, .file = "aws-p4.txt"}));
}

struct Made {
  std::string command = "scale";
  std::string model = "llama2-7b";
  bool gpus = true;
  bool samples = false;
  bool complete = true;
  std::vector<std::string> advice, warnings;
};

Json report_of(std::vector<PointResult> points, const Made& made) {
  set_speedups(points);
  set_losses(points);
  SweepOptions options;
  int most = 1;
  for (const PointResult& point : points) {
    most = std::max(most, point.tp);
    if (std::find(options.workloads.begin(), options.workloads.end(), point.workload) == options.workloads.end()) {
      options.workloads.push_back(point.workload);
    }
  }
  Environment cpu;
  cpu.host = "desk";
  cpu.cpu = "some CPU";
  cpu.threads_per_rank = 2;
  cpu.ranks = {{.rank = 0, .host = "desk", .cores = {0, 1}}};
  const ReportHeader header{.command = made.command,
                            .argv = {"shardscope", made.command, "--model", made.model},
                            .options = {{"model", made.model}, {"samples", made.samples}},
                            .environment = made.gpus ? gpu_environment(most) : cpu,
                            .topology = made.gpus ? gpu_topology() : Json(nullptr),
                            .samples = made.samples};
  return report_json(
      header, open_model({.model = made.model}), options,
      {.points = std::move(points), .advice = made.advice, .warnings = made.warnings, .complete = made.complete});
}

}  // namespace

Json big_report() {
  Noise noise;
  std::vector<PointResult> points;
  for (const int tp : {1, 2, 4, 8}) {
    for (int64_t batch = 1; batch <= 256; batch *= 2) {
      const Workload workload{.batch = batch, .prompt_tokens = 512, .output_tokens = 128};
      points.push_back(made_up_point(tp, workload, {.samples = batch == 1}, noise));
    }
  }
  points.back().verdicts = {"noise: the median is known to within 3.1 % only", "outliers: 2 severe, of which 1 stolen"};
  return report_of(std::move(points),
                   {.samples = true,
                    .advice = {"At batch 1, TP=4 is 1.31x faster than TP=2 (65 % of ideal); of the loss 58 % is "
                               "all-reduce transfer, 23 % small matrices, 12 % waiting for rank 3.",
                               "Two replicas at TP=4 would give more tokens per second from batch 8 on, if replicas do "
                               "not disturb each other (measure with --replicas)."},
                    .warnings = {"rank 7 is bound to a core of the other socket"}});
}

Json mixed_report() {
  Noise noise;
  std::vector<PointResult> points;
  for (int tp = 1; tp <= 8; ++tp) {
    for (const auto placement : {topology::Placement::kBest, topology::Placement::kWorst}) {
      if (tp == 8 && placement == topology::Placement::kWorst) continue;
      for (const int64_t prompt : {128, 1024}) {
        for (const int64_t batch : {1, 8}) {
          points.push_back(made_up_point(tp, {.batch = batch, .prompt_tokens = prompt, .output_tokens = 32},
                                         {.generations = 8}, noise));
          points.back().group.placement = placement;
          if (tp == 8) points.back().group.also = {topology::Placement::kLinear, topology::Placement::kWorst};
        }
      }
    }
  }
  points[1] = {.tp = 1, .workload = points[1].workload, .status = PointStatus::kOutOfMemory};
  points[1].group.placement = topology::Placement::kBest;
  points[2].status = PointStatus::kIncomplete;
  points[9].status = PointStatus::kInvalid;
  points[9].verdicts = {"invalid: another program read the memory meanwhile"};
  for (size_t i = points.size() - 4; i < points.size(); ++i) {  // of their collectives nothing is known
    points[i].kind = FigureKind::kRehearsed;
    points[i].rehearsal =
        Rehearsal{.rank = 0, .co_runners = 7, .collective_model = "none known: compute only", .stated_error = 0.2};
    points[i].ranks.resize(1);
    points[i].comm_share.reset();
  }
  points.back().rehearsal->stated_error.reset();  // its ranks took turns
  return report_of(std::move(points), {.complete = false});
}

Json single_report() {
  Noise noise;
  return report_of({made_up_point(2, {.batch = 4, .prompt_tokens = 64, .output_tokens = 16},
                                  {.generations = 5, .attribution = false}, noise)},
                   {.command = "bench", .gpus = false});
}

Json batches_report() {
  Noise noise;
  std::vector<PointResult> points;
  for (const int64_t batch : {1, 3, 16})
    points.push_back(made_up_point(1, {.batch = batch, .prompt_tokens = 64, .output_tokens = 16}, {}, noise));
  return report_of(std::move(points), {.gpus = false});
}

Json nothing_ok_report() {
  std::vector<PointResult> points = {
      {.tp = 1, .workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 4}, .status = PointStatus::kOutOfMemory},
      {.tp = 2, .workload = {.batch = 1, .prompt_tokens = 8, .output_tokens = 4}, .status = PointStatus::kInvalid}};
  return report_of(std::move(points), {});
}

Json empty_report() {
  return report_of({}, {.gpus = false, .complete = false, .warnings = {"interrupted by SIGINT"}});
}

Json no_tpot_report() {
  Noise noise;
  std::vector<PointResult> points;
  for (const int tp : {1, 2})
    points.push_back(made_up_point(tp, {.batch = 1, .prompt_tokens = 64, .output_tokens = 1}, {}, noise));
  return report_of(std::move(points), {.gpus = false});
}

Json replicas_report() {
  Noise noise;
  std::vector<PointResult> points;
  const auto add = [&](int tp, int replicas) {
    points.push_back(made_up_point(tp, {.batch = 4, .prompt_tokens = 64, .output_tokens = 16}, {}, noise));
    points.back().group.replicas = replicas;
    *points.back().throughput_tokens_per_s *= replicas;
  };
  for (const int tp : {1, 2, 4}) add(tp, 1);
  for (const int tp : {1, 2}) add(tp, 4 / tp);
  return report_of(std::move(points), {});
}

Json hostile_report() {
  Json report = big_report();
  const std::string attack =
      "</script><script>window.attacked = 1</script><img src=x onerror=\"window.attacked = "
      "1\"><!--<script>\u2028\u2029&amp;'\"]]>";
  const std::function<void(Json&)> spoil = [&](Json& value) {
    if (value.is_object() || value.is_array()) {
      for (Json& part : value) spoil(part);
    } else if (value.is_string()) {
      value = attack + value.get<std::string>();
    }
  };
  for (const char* key :
       {"argv", "environment", "model", "workload", "protocol", "comparable_key", "advice", "warnings", "options"})
    spoil(report[key]);
  for (Json& row : report["results"]) {
    for (const char* key : {"placement", "placement_also", "allreduce", "allreduce_choices", "verdicts", "unmet"})
      spoil(row[key]);
    row["status"] = attack;
    row["kind"] = attack;
  }
  report["options"][attack] = attack;
  report["environment"]["variables"][attack] = attack;
  return report;
}

Json predicted_report() {
  Json report = big_report();
  report["command"] = "plan";
  report["model"]["kind"] = "synthetic";
  for (Json& row : report["results"]) {
    row["kind"] = "predicted";
    const auto range = [&](const char* figure) {
      const double value = row[figure]["p50"].get<double>();
      return Json::array({value / 1.2, value * 1.2});
    };
    row["range"] = {{"tpot_ms", range("tpot_ms")}, {"ttft_ms", range("ttft_ms")}};
    row["noise"] = {{"low_ms", nullptr}, {"high_ms", nullptr}, {"relative", nullptr}, {"pass_shift", nullptr}};
  }
  return report;
}

std::vector<std::pair<std::string, Json>> all_reports() {
  return {{"big", big_report()},
          {"mixed", mixed_report()},
          {"single", single_report()},
          {"batches", batches_report()},
          {"nothing_ok", nothing_ok_report()},
          {"empty", empty_report()},
          {"no_tpot", no_tpot_report()},
          {"replicas", replicas_report()},
          {"hostile", hostile_report()},
          {"predicted", predicted_report()}};
}

std::string drawing_of(const Json& report) {
  if (report.at("topology").is_null()) return "";
  return topology::topology_svg(topology::topology_of_json(nlohmann::json(report.at("topology")), "report"));
}

}  // namespace shardscope::test
