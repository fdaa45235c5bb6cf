#include "launch/comm_options.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::launch {
namespace {

using kernels::DType;
using parallel::CommunicatorKind;
using namespace std::string_view_literals;

constexpr int64_t kKilo = 1024;
constexpr int64_t kFirstBytes = kKilo;
constexpr int64_t kLastBytesOnHosts = 4 * kKilo * kKilo;
constexpr int64_t kLastBytesOnDevices = 16 * kKilo * kKilo;
constexpr int64_t kMostBytes = kKilo * kKilo * kKilo;
constexpr double kNoiseBoundOnDevices = 0.005;

constexpr std::array kDTypes = {"auto"sv, "fp32"sv, "fp16"sv, "bf16"sv};
constexpr std::array kGraphs = {"auto"sv, "on"sv, "off"sv};

/// Numbers of the names in a list, each once; empty: one of them was `auto`, which is number 0.
std::vector<size_t> choices(const po::variables_map& values, const char* name,
                            std::span<const std::string_view> known) {
  const std::vector<size_t> all = parse_names(values[name].as<std::string>(), std::string("--") + name, known);
  return std::find(all.begin(), all.end(), size_t{0}) == all.end() ? all : std::vector<size_t>{};
}

std::optional<int64_t> bytes_of(const po::variables_map& values, const char* name) {
  if (values.count(name) == 0) return std::nullopt;
  const auto bytes = values[name].as<int64_t>();
  check_range(bytes, std::string("--") + name, 1, kMostBytes);
  return bytes;
}

/// Beside auto, what else can be used.
std::string remedy_text(const parallel::SumBench& bench) {
  std::vector<std::string> names = {"use auto"};
  for (const parallel::SumBench::Way& way : bench.ways()) {
    if (way.why_not.empty()) names.push_back(way.name);
  }
  return fmt::format("{}", fmt::join(names, " or "));
}

}  // namespace

po::options_description comm_option_list() {
  const runtime::SumProtocol protocol;
  const std::string iterations = fmt::format(
      "samples measured of each row, unless --max-seconds ends them; default: at least {} and until the median is "
      "known "
      "to within {:g} % (on GPUs {:g} %)",
      protocol.least_samples, protocol.noise_bound * 100, kNoiseBoundOnDevices * 100);
  po::options_description options("options");
  options.add_options()  //
      ("tp", po::value<std::string>()->value_name("LIST"),
       "tensor-parallel degrees: 1,2,4 or 1..8 or 1..8x2; default: the number of ranks")  //
      ("min-bytes", po::value<int64_t>()->value_name("N"),
       "of the smallest message; default: 1024")  //
      ("max-bytes", po::value<int64_t>()->value_name("N"),
       "of the largest, reached by doubling; default: 4194304, on GPUs 16777216")  //
      ("allreduce", po::value<std::string>()->default_value("auto")->value_name("LIST"),
       "ways of summing: auto (all that can be used); on GPUs: nccl, nccl-symmetric, one-shot, two-shot; on the cpu: "
       "mpi, shm")  //
      ("dtype", po::value<std::string>()->default_value("auto")->value_name("LIST"),
       "element types: auto (bf16 on GPUs, fp32 on the cpu), fp32, fp16, bf16; on the cpu fp32 alone")  //
      ("graphs", po::value<std::string>()->default_value("auto")->value_name("LIST"),
       "on GPUs: on (calls are captured once and replayed; auto), off (each is enqueued)");
  add_backend_option(options);
  options.add_options()  //
      ("oversubscribe-devices", po::bool_switch(),
       "ranks may share a GPU, for trying things out: times say little")  //
      ("warmup", po::value<int64_t>()->default_value(protocol.warmup)->value_name("N"),
       "samples before the measured ones of each row")                           //
      ("iterations", po::value<int64_t>()->value_name("N"), iterations.c_str())  //
      ("max-seconds", po::value<double>()->default_value(protocol.max_seconds)->value_name("S"),
       "longest measuring time of a row")  //
      ("seed", po::value<std::string>()->default_value("0")->value_name("N"),
       "of the order in which the ways take turns")                                                      //
      ("json", po::value<std::string>()->value_name("FILE"), "write the report; - for standard output")  //
      ("csv", po::value<std::string>()->value_name("FILE"), "write a line for each row; - for standard output");
  add_run_options(options);
  return options;
}

CommArguments comm_arguments(const po::variables_map& values, Session& session) {
  CommArguments arguments{.run = run_options(values, session), .backend = backend_kind(values)};
  arguments.shared_devices = values["oversubscribe-devices"].as<bool>();
  const SweepDefaults defaults{.command = kCommCommand, .powers_of_two = false, .protocol = {}};
  arguments.degrees = sweep_degrees(values, defaults, session.world.size(), /*dry_run=*/false);
  arguments.min_bytes = bytes_of(values, "min-bytes");
  arguments.max_bytes = bytes_of(values, "max-bytes");
  if (arguments.min_bytes && arguments.max_bytes && *arguments.min_bytes > *arguments.max_bytes) {
    throw UserError(fmt::format("{} is more than --max-bytes {}", *arguments.min_bytes, *arguments.max_bytes),
                    "--min-bytes", "use a smaller one");
  }
  for (const size_t way : choices(values, "allreduce", kAllReduceNames)) {
    arguments.ways.push_back(static_cast<CommunicatorKind>(way));
  }
  for (const size_t dtype : choices(values, "dtype", kDTypes)) {
    arguments.dtypes.push_back(*kernels::dtype_named(kDTypes[dtype]));
  }
  for (const size_t graph : choices(values, "graphs", kGraphs)) arguments.graphs.push_back(graph == 1);
  runtime::SumProtocol& protocol = arguments.protocol;
  protocol.warmup = values["warmup"].as<int64_t>();
  check_range(protocol.warmup, "--warmup", 1, 10'000);
  if (values.count("iterations") > 0) {
    protocol.iterations = values["iterations"].as<int64_t>();
    check_range(*protocol.iterations, "--iterations", 1, 1'000'000);
  }
  protocol.max_seconds = positive(values, "max-seconds", "number of seconds", "use e.g. 1");
  protocol.seed = parse_seed(values["seed"].as<std::string>());
  arguments.files = {.json = file_named(values, "json"), .csv = file_named(values, "csv"), .resume = {}};
  check_files(arguments.files);
  check_inputs(arguments.files, values, {"config"});
  return arguments;
}

std::vector<int64_t> sum_counts(int64_t min_bytes, int64_t max_bytes, DType dtype) {
  const int64_t element = kernels::row_bytes(dtype, 1);
  std::vector<int64_t> counts = {(min_bytes + element - 1) / element};
  while (counts.back() * 2 * element <= max_bytes) counts.push_back(counts.back() * 2);
  return counts;
}

int64_t CommPlan::most_bytes() const {
  int64_t most = 0;
  for (const runtime::SumCase& sum : cases) most = std::max(most, sum.bytes());
  return most;
}

int64_t CommPlan::least_bytes() const {
  int64_t least = kMostBytes;
  for (const runtime::SumCase& sum : cases) least = std::min(least, sum.bytes());
  return least;
}

CommPlan comm_plan(const CommArguments& arguments, bool on_devices) {
  for (const CommunicatorKind way : arguments.ways) {
    const std::string option = fmt::format("--allreduce {}", parallel::communicator_name(way));
    if (!on_devices && sums_on_devices(way)) {
      throw UserError("that sums on GPUs, and the backend is cpu", option, "use auto, mpi or shm");
    }
    if (on_devices && sums_on_hosts(way)) {
      throw UserError("that sums in the hosts' memory, and the backend is cuda", option,
                      "use auto, nccl, nccl-symmetric, one-shot or two-shot, or --backend cpu");
    }
  }
  for (const DType dtype : arguments.dtypes) {
    if (on_devices || dtype == DType::kF32) continue;
    throw UserError(fmt::format("the cpu backend sums fp32, not {}", kernels::facts(dtype).name), "--dtype",
                    "use auto or fp32");
  }
  if (!on_devices && std::find(arguments.graphs.begin(), arguments.graphs.end(), true) != arguments.graphs.end()) {
    throw UserError("the cpu backend has no graphs", "--graphs on", "leave it out, or use --backend cuda");
  }
  CommPlan plan{.degrees = arguments.degrees, .cases = {}, .ways = {}, .protocol = arguments.protocol, .notes = {}};
  if (on_devices) plan.protocol.noise_bound = kNoiseBoundOnDevices;
  for (const CommunicatorKind way : arguments.ways) plan.ways.emplace_back(parallel::communicator_name(way));
  std::vector<DType> dtypes = arguments.dtypes;
  if (dtypes.empty()) dtypes = {on_devices ? DType::kBF16 : DType::kF32};
  std::vector<bool> graphs = arguments.graphs;
  if (graphs.empty()) graphs = {on_devices};
  const int64_t usual_most = on_devices ? kLastBytesOnDevices : kLastBytesOnHosts;
  const int64_t min_bytes =
      arguments.min_bytes.value_or(std::min(kFirstBytes, arguments.max_bytes.value_or(kMostBytes)));
  const int64_t max_bytes = arguments.max_bytes.value_or(std::max(usual_most, min_bytes));
  for (const DType dtype : dtypes) {
    const std::vector<int64_t> counts = sum_counts(min_bytes, max_bytes, dtype);
    const int64_t first_bytes = kernels::row_bytes(dtype, counts.front());
    if (first_bytes != min_bytes) {
      plan.notes.push_back(fmt::format("{} bytes are no whole number of {} elements: sizes begin with {}", min_bytes,
                                       kernels::facts(dtype).name, first_bytes));
    }
    for (const bool graph : graphs) {
      for (const int64_t count : counts)
        plan.cases.push_back({.tp = 0, .count = count, .dtype = dtype, .graph = graph});
    }
  }
  return plan;
}

std::vector<parallel::SumBench::Way> chosen_ways(const CommPlan& plan, const parallel::SumBench& bench, int tp,
                                                 std::vector<runtime::LeftOutWay>& left_out) {
  std::vector<parallel::SumBench::Way> chosen;
  for (const parallel::SumBench::Way& way : bench.ways()) {
    const bool named = std::find(plan.ways.begin(), plan.ways.end(), way.name) != plan.ways.end();
    if (tp > 1 && !plan.ways.empty() && !named) continue;
    if (way.why_not.empty() && named && tp > 1 && way.most_bytes < plan.least_bytes()) {
      throw UserError(fmt::format("sums messages of up to {} bytes", way.most_bytes),
                      fmt::format("--allreduce {}", way.name), "use a smaller --min-bytes, or another way");
    }
    if (way.why_not.empty()) {
      chosen.push_back(way);
    } else if (named && tp > 1) {
      throw UserError(fmt::format("cannot be used at TP {}: {}", tp, way.why_not),
                      fmt::format("--allreduce {}", way.name), remedy_text(bench));
    } else {
      left_out.push_back({.tp = tp, .way = way.name, .why = way.why_not});
    }
  }
  if (chosen.empty()) {
    std::string why;
    for (const runtime::LeftOutWay& way : left_out) {
      if (way.tp == tp) why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", way.way, way.why);
    }
    throw UserError(fmt::format("there is no way of summing at TP {}", tp), why, "");
  }
  return chosen;
}

}  // namespace shardscope::launch
