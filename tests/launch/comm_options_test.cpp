#include "launch/comm_options.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "tests/support/fake_sum_bench.hpp"

using namespace shardscope;
using namespace shardscope::launch;
using Catch::Matchers::Contains;
using kernels::DType;
using parallel::CommunicatorKind;

namespace {

using Words = std::vector<std::string>;

/// Of a run of one rank.
CommArguments arguments_of(const Words& words) {
  parallel::World world({.use_mpi = false});
  Session session{.world = world, .launcher = {}, .argv = {}};
  return comm_arguments(parse_arguments(comm_option_list(), words, kCommCommand), session);
}

CommPlan plan_of(const Words& words, bool on_devices = false) {
  return comm_plan(arguments_of(words), on_devices);
}

std::string refusal(const Words& words, bool on_devices = false) {
  try {
    plan_of(words, on_devices);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::vector<int64_t> sizes_of(const CommPlan& plan) {
  std::vector<int64_t> bytes;
  for (const runtime::SumCase& sum : plan.cases) bytes.push_back(sum.bytes());
  return bytes;
}

std::vector<std::string> names_of(const std::vector<parallel::SumBench::Way>& ways) {
  std::vector<std::string> names;
  for (const parallel::SumBench::Way& way : ways) names.push_back(way.name);
  return names;
}

}  // namespace

TEST_CASE("sum_counts: doubling from the least whole number of elements") {
  CHECK(sum_counts(1024, 8192, DType::kF32) == std::vector<int64_t>{256, 512, 1024, 2048});
  CHECK(sum_counts(1024, 8191, DType::kBF16) == std::vector<int64_t>{512, 1024, 2048});
  CHECK(sum_counts(1, 16, DType::kF32) == std::vector<int64_t>{1, 2, 4});
  CHECK(sum_counts(1001, 2100, DType::kF32) == std::vector<int64_t>{251, 502});
  CHECK(sum_counts(3, 3, DType::kF32) == std::vector<int64_t>{1});  // one size at least
}

TEST_CASE("comm_plan: defaults of hosts and of devices") {
  const CommPlan hosts = plan_of({});
  CHECK(sizes_of(hosts).front() == 1024);
  CHECK(sizes_of(hosts).back() == 4 << 20);
  CHECK(hosts.cases.size() == 13);
  CHECK(hosts.most_bytes() == 4 << 20);
  CHECK(hosts.ways.empty());
  CHECK(hosts.degrees == std::vector<int>{1});
  CHECK(hosts.protocol.noise_bound == 0.02);
  for (const runtime::SumCase& sum : hosts.cases) CHECK((sum.dtype == DType::kF32 && !sum.graph));
  const CommPlan devices = plan_of({}, true);
  CHECK(sizes_of(devices).back() == 16 << 20);
  CHECK(devices.protocol.noise_bound == 0.005);
  for (const runtime::SumCase& sum : devices.cases) CHECK((sum.dtype == DType::kBF16 && sum.graph));
}

TEST_CASE("comm_plan: one bound moves the other where it has to") {
  CHECK(sizes_of(plan_of({"--max-bytes", "512"})) == std::vector<int64_t>{512});
  CHECK(sizes_of(plan_of({"--min-bytes", "8388608"})) == std::vector<int64_t>{8 << 20});
  CHECK(sizes_of(plan_of({"--min-bytes", "2048", "--max-bytes", "4096"})) == std::vector<int64_t>{2048, 4096});
}

TEST_CASE("comm_plan: a size that is no whole number of elements is rounded up, and that is said") {
  const CommPlan plan = plan_of({"--min-bytes", "1001", "--max-bytes", "2100"});
  CHECK(sizes_of(plan) == std::vector<int64_t>{1004, 2008});
  REQUIRE(plan.notes.size() == 1);
  CHECK_THAT(plan.notes[0], Contains("1001 bytes") && Contains("fp32") && Contains("1004"));
  CHECK(plan_of({"--min-bytes", "1000"}).notes.empty());
}

TEST_CASE("comm_plan: lists of types and modes, each with all sizes") {
  const CommPlan plan = plan_of({"--dtype", "bf16,fp32", "--graphs", "off,on", "--max-bytes", "2048"}, true);
  REQUIRE(plan.cases.size() == 2 * 2 * 2);
  CHECK((plan.cases[0].dtype == DType::kF32 && plan.cases[0].graph));
  CHECK((plan.cases[7].dtype == DType::kBF16 && !plan.cases[7].graph && plan.cases[7].count == 1024));
  CHECK(plan_of({"--dtype", "fp16,auto"}, true).cases[0].dtype == DType::kBF16);
}

TEST_CASE("comm_arguments: ways by name, once each, and auto is all") {
  CHECK(arguments_of({"--allreduce", "shm,mpi,shm"}).ways ==
        std::vector<CommunicatorKind>{CommunicatorKind::kMpi, CommunicatorKind::kShm});
  CHECK(arguments_of({"--allreduce", "shm,auto"}).ways.empty());
  for (const CommunicatorKind kind :
       {CommunicatorKind::kNccl, CommunicatorKind::kNcclSymmetric, CommunicatorKind::kOneShot,
        CommunicatorKind::kTwoShot, CommunicatorKind::kMpi, CommunicatorKind::kShm}) {
    CHECK(arguments_of({"--allreduce", std::string(parallel::communicator_name(kind))}).ways == std::vector{kind});
  }
}

TEST_CASE("comm_arguments: how it is measured") {
  const CommArguments arguments =
      arguments_of({"--warmup", "3", "--iterations", "50", "--max-seconds", "2.5", "--seed", "18446744073709551615",
                    "--oversubscribe-devices", "--backend", "cuda"});
  CHECK(arguments.protocol.warmup == 3);
  CHECK(arguments.protocol.iterations == 50);
  CHECK(arguments.protocol.max_seconds == 2.5);
  CHECK(arguments.protocol.seed == UINT64_MAX);
  CHECK(arguments.shared_devices);
  CHECK(arguments.backend == BackendKind::kCuda);
}

TEST_CASE("comm_plan: what a kind of memory does not have is named") {
  CHECK_THAT(refusal({"--allreduce", "one-shot"}), Contains("--allreduce one-shot") && Contains("mpi or shm"));
  CHECK_THAT(refusal({"--allreduce", "nccl,shm"}), Contains("--allreduce nccl,"));
  CHECK_THAT(refusal({"--allreduce", "shm"}, true), Contains("--allreduce shm") && Contains("nccl-symmetric"));
  CHECK_THAT(refusal({"--dtype", "fp32,bf16"}), Contains("bf16") && Contains("fp32"));
  CHECK_THAT(refusal({"--graphs", "on"}), Contains("--graphs on"));
  CHECK(refusal({"--graphs", "off", "--dtype", "fp32", "--allreduce", "mpi,shm"}).empty());
  CHECK(refusal({"--graphs", "on,off", "--dtype", "fp16,bf16,fp32", "--allreduce", "nccl,two-shot"}, true).empty());
}

TEST_CASE("comm_arguments: bad values") {
  CHECK_THAT(refusal({"--min-bytes", "0"}), Contains("--min-bytes, use 1 to"));
  CHECK_THAT(refusal({"--max-bytes", "-8"}), Contains("-8 is out of range, --max-bytes"));
  CHECK_THAT(refusal({"--max-bytes", "1073741825"}), Contains("--max-bytes"));
  CHECK_THAT(refusal({"--min-bytes", "64k"}), Contains("'64k'"));
  CHECK_THAT(refusal({"--min-bytes", "9", "--max-bytes", "8"}), Contains("9 is more than --max-bytes 8, --min-bytes"));
  CHECK_THAT(refusal({"--allreduce", "ring"}), Contains("'ring'") && Contains("use one of: auto, nccl, nccl-symmetric, "
                                                                              "one-shot, two-shot, mpi, shm"));
  CHECK_THAT(refusal({"--allreduce", ""}), Contains("use one of"));
  CHECK_THAT(refusal({"--allreduce", "shm,"}), Contains("use one of"));
  CHECK_THAT(refusal({"--dtype", "int8"}), Contains("use one of: auto, fp32, fp16, bf16"));
  CHECK_THAT(refusal({"--graphs", "yes"}), Contains("use one of: auto, on, off"));
  CHECK_THAT(refusal({"--warmup", "0"}), Contains("--warmup"));
  CHECK_THAT(refusal({"--iterations", "0"}), Contains("--iterations"));
  CHECK_THAT(refusal({"--max-seconds", "nan"}), Contains("--max-seconds"));
  CHECK_THAT(refusal({"--seed", "-1"}), Contains("--seed"));
  CHECK_THAT(refusal({"--tp", "2"}), Contains("1 rank started, --tp 2"));
  CHECK_THAT(refusal({"--json", "-", "--csv", "-"}), Contains("--json -, --csv -"));
}

TEST_CASE("chosen_ways: all that can be used, or those that were named") {
  const test::FakeSumBench bench({{"a", 1024, ""}, {"shm", 1024, "of several hosts"}, {"mpi", 1024, ""}}, {});
  std::vector<runtime::LeftOutWay> left_out;
  CHECK(names_of(chosen_ways(plan_of({}), bench, 2, left_out)) == std::vector<std::string>{"a", "mpi"});
  REQUIRE(left_out.size() == 1);
  CHECK((left_out[0].tp == 2 && left_out[0].way == "shm" && left_out[0].why == "of several hosts"));
  left_out.clear();
  CHECK(names_of(chosen_ways(plan_of({"--allreduce", "mpi"}), bench, 2, left_out)) == std::vector<std::string>{"mpi"});
  CHECK(left_out.empty());
}

TEST_CASE("chosen_ways: a way that was named and cannot be used is refused with its reason") {
  const test::FakeSumBench bench({{"shm", 0, "of several hosts"}, {"mpi", 1024, ""}}, {});
  std::vector<runtime::LeftOutWay> left_out;
  CHECK_THROWS_WITH(chosen_ways(plan_of({"--allreduce", "shm,mpi"}), bench, 2, left_out),
                    Contains("of several hosts") && Contains("--allreduce shm") && Contains("use auto or mpi"));
}

TEST_CASE("chosen_ways: a way that was named and takes none of the messages is refused") {
  const test::FakeSumBench bench({{"shm", 1023, ""}, {"mpi", 1024, ""}}, {});
  std::vector<runtime::LeftOutWay> left_out;
  CHECK_THROWS_WITH(chosen_ways(plan_of({"--allreduce", "shm"}), bench, 2, left_out),
                    Contains("up to 1023 bytes") && Contains("--allreduce shm") && Contains("--min-bytes"));
  CHECK(chosen_ways(plan_of({}), bench, 2, left_out).size() == 2);
  CHECK(chosen_ways(plan_of({"--allreduce", "mpi"}), bench, 2, left_out).size() == 1);
}

TEST_CASE("chosen_ways: where no way can be used the reasons of all are told") {
  const test::FakeSumBench bench({{"one", 0, "this"}, {"two", 0, "that"}}, {});
  std::vector<runtime::LeftOutWay> left_out;
  CHECK_THROWS_WITH(chosen_ways(plan_of({}), bench, 2, left_out),
                    Contains("no way of summing at TP 2") && Contains("one: this; two: that"));
}

TEST_CASE("chosen_ways: one rank alone has its own way, whatever was named") {
  const test::FakeSumBench bench({{"none", 1, ""}}, {});
  std::vector<runtime::LeftOutWay> left_out;
  CHECK(names_of(chosen_ways(plan_of({"--allreduce", "shm"}), bench, 1, left_out)) == std::vector<std::string>{"none"});
}
