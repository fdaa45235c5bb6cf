#include "tests/runtime/compare/report_pair.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "topology/read/reading.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::test {
namespace {

using namespace runtime;

Json recorded_topology(const std::string& file) {
  std::ifstream in(std::filesystem::path(SHARDSCOPE_TEST_DATA) / "topologies" / file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return topology::topology_json(topology::read_topology({.text = text, .file = file}));
}

Environment environment_of(const RunFacts& facts) {
  Environment environment;
  environment.time = "2026-03-01T12:00:00Z";
  environment.host = facts.host;
  environment.cpu = "some CPU";
  environment.threads_per_rank = facts.threads;
  environment.build = {.version = "0.1.0", .commit = facts.commit, .compiler = "g++ 12", .build_type = "Release"};
  const bool gpus = !facts.topology_file.empty();
  environment.backend = gpus ? "cuda: compute capability 8.0" : "cpu: AVX3_DL";
  if (gpus) environment.nccl = facts.nccl;
  const int ranks = gpus ? 8 : 4;
  for (int rank = 0; rank < ranks; ++rank) {
    environment.ranks.push_back({.rank = rank, .host = facts.host, .cores = {rank}});
    if (gpus) environment.devices.push_back({.rank = rank, .name = "NVIDIA A100-SXM4-40GB", .mhz = 1410});
  }
  return environment;
}

}  // namespace

std::string report_text(std::vector<PointResult> points, const RunFacts& facts) {
  points = with_losses(std::move(points));
  SweepOptions options;
  options.protocol.noise_bound = facts.noise_bound;
  for (const PointResult& point : points) {
    if (std::find(options.workloads.begin(), options.workloads.end(), point.workload) == options.workloads.end()) {
      options.workloads.push_back(point.workload);
    }
  }
  const ReportHeader header{
      .command = "scale",
      .argv = {"shardscope", "scale"},
      .options = {{"threads", facts.threads}},
      .environment = environment_of(facts),
      .topology = facts.topology_file.empty() ? Json(nullptr) : recorded_topology(facts.topology_file)};
  return document_text(report_json(header, open_model({.model = "tiny"}), options,
                                   {.points = std::move(points), .complete = facts.complete}));
}

ReadReport a_report(const std::string& name, const std::vector<PointResult>& points, const RunFacts& facts) {
  return read_report(report_text(points, facts), fmt::format("{}.json", name), name);
}

PointResult a_known_point(const std::vector<PartMs>& ranks) {
  PointResult point = a_parted_point(ranks, 0.01 * ranks.front().parts().sum());
  point.generations = point.tpot_ms.n = 24;
  return point;
}

PointResult a_known_point(int tp, const PartMs& parts) {
  return a_known_point(std::vector<PartMs>(static_cast<size_t>(tp), parts));
}

std::vector<ReadReport> two_clouds() {
  const auto rows = [](double transfer_ms) {
    return std::vector<PointResult>{
        a_known_point(2, {.ideal = 20, .matrices = 2, .transfer = 1}),
        a_known_point(8, {.ideal = 5, .matrices = 1.5, .transfer = transfer_ms, .wait = 0.2, .gaps = 0.1})};
  };
  return {a_report("aws-p4", rows(1.2),
                   {.topology_file = "nvidia-smi/aws-p4-8xa100-sxm4-nv12.txt", .host = "aws-17", .nccl = "2.27.3"}),
          a_report("other-cloud", rows(9.2),
                   {.topology_file = "nvidia-smi/onprem-8xa40-pairs-abbreviated-dots.txt",
                    .host = "other-3",
                    .nccl = "2.18.1"})};
}

}  // namespace shardscope::test
