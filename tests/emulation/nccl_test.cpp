// The NCCL stand-in with ranks as devices of one process: collectives of right programs. Their communicators:
// nccl_communicators_test.cpp; what it refuses and reports: nccl_refusals_test.cpp; several processes:
// nccl_processes_test.cpp.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/nccl_stand.hpp"
#include "tests/emulation/seeds.hpp"

namespace shardscope::test {
namespace {

constexpr Operation kOperations[] = {Operation::kAllReduce, Operation::kAllGather, Operation::kReduceScatter,
                                     Operation::kBroadcast};

emulation::Options machine(int devices, uint64_t seed = 0) {
  return {.seed = seed, .devices = devices};
}

/// Does it once; "" or what is wrong.
std::string run(const DeviceRanks& ranks, const Collective& collective, double tolerance = 0) {
  const auto parts = parts_of(ranks, collective);
  ranks.grouped([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    need(parts[r]->call(ranks.communicators[r], ranks.streams[r]), "the collective");
  });
  std::string difference;
  ranks.each([&](int rank) {
    if (difference.empty()) difference = parts[static_cast<size_t>(rank)]->difference(tolerance);
  });
  return difference;
}

/// All-reduce of each rank's values, [ranks][count]; what each rank then has.
std::vector<std::vector<double>> sums(const std::vector<std::vector<double>>& values, ncclDataType_t type,
                                      emulation::Reduction order, ncclRedOp_t reduction = ncclSum) {
  emulation::Options options = machine(static_cast<int>(std::ssize(values)));
  options.nccl.reduction = order;
  emulation::restart(options);
  const DeviceRanks ranks(options.devices);
  std::vector<void*> memory(values.size());
  ranks.each([&](int rank) {
    const std::vector<std::byte> bytes = encode(type, values[static_cast<size_t>(rank)]);
    void*& mine = memory[static_cast<size_t>(rank)];
    need(cudaMalloc(&mine, bytes.size()), "cudaMalloc");
    need(cudaMemcpy(mine, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  });
  ranks.grouped([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    need(ncclAllReduce(memory[r], memory[r], values[r].size(), type, reduction, ranks.communicators[r],
                       ranks.streams[r]),
         "ncclAllReduce");
  });
  ranks.synchronise();
  std::vector<std::vector<double>> results;
  ranks.each([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<std::byte> bytes(values[r].size() * static_cast<size_t>(bytes_of(type)));
    need(cudaMemcpy(bytes.data(), memory[r], bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    results.push_back(decode(type, bytes));
  });
  return results;
}

}  // namespace

TEST_CASE("nccl: every operation, type and reduction gives exact results on 1 to 8 ranks") {
  const int count = GENERATE(1, 2, 3, 4, 8);
  emulation::restart(machine(count));
  DeviceRanks ranks(count);
  for (const Operation operation : kOperations) {
    const bool reduces = operation == Operation::kAllReduce || operation == Operation::kReduceScatter;
    for (const ncclDataType_t type : kReducedTypes) {
      for (int reduction = ncclSum; reduction <= (reduces ? ncclAvg : ncclSum); ++reduction) {
        for (const bool in_place : {false, true}) {
          const Collective collective{.operation = operation,
                                      .type = type,
                                      .reduction = static_cast<ncclRedOp_t>(reduction),
                                      .count = 37,
                                      .root = count - 1,
                                      .in_place = in_place};
          CHECK(run(ranks, collective) == "");
        }
      }
    }
  }
  ranks.destroy();
  CHECK(all_reports() == "");
}

TEST_CASE("nccl: operations of no element, one, and more than go through the slots at once") {
  const int count = GENERATE(1, 3, 8);
  emulation::restart(machine(count));
  const DeviceRanks ranks(count);
  for (const Operation operation : kOperations) {
    // 256 KiB at a time: just so many, one more, and several times that.
    for (const int64_t elements : {0, 1, 128 * 1024, 128 * 1024 + 1, 300'001}) {
      const bool in_place = elements % 2 == 1;
      CHECK(run(ranks, {.operation = operation, .type = ncclFloat16, .count = elements, .in_place = in_place}) == "");
    }
  }
  CHECK(all_reports() == "");
}

TEST_CASE("nccl: 8-bit floating-point types are moved") {
  emulation::restart(machine(2));
  const DeviceRanks ranks(2);
  std::vector<void*> memory(2);
  ranks.each([&](int rank) {
    void*& mine = memory[static_cast<size_t>(rank)];
    need(cudaMalloc(&mine, 16), "cudaMalloc");
    need(cudaMemset(mine, 0x30 + rank, 16), "cudaMemset");
    need(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  });
  ranks.grouped([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    need(ncclBroadcast(memory[r], memory[r], 16, ncclFloat8e4m3, 1, ranks.communicators[r], ranks.streams[r]),
         "ncclBroadcast");
  });
  ranks.synchronise();
  uint8_t got[16] = {};
  need(cudaMemcpy(got, memory[0], 16, cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (const uint8_t byte : got) CHECK(byte == 0x31);
}

TEST_CASE("nccl: half and bfloat16 are converted exactly, and rounded to even") {
  using emulation::Reduction;
  const ncclDataType_t type = GENERATE(ncclFloat16, ncclBfloat16);
  // Every finite value, alone.
  std::vector<std::byte> patterns;
  for (int pattern = 0; pattern < 1 << 16; ++pattern) {
    patterns.push_back(static_cast<std::byte>(pattern & 0xFF));
    patterns.push_back(static_cast<std::byte>(pattern >> 8));
  }
  std::vector<double> values = decode(type, patterns);
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  CHECK(values.size() > 60'000);
  CHECK(sums({values}, type, Reduction::kOnce)[0] == values);

  // Where numbers are 2 apart: 2^11 in half, 2^8 in bfloat16.
  const double base = type == ncclFloat16 ? 2048 : 256;
  const std::vector<double> sum = sums({{base, base, base, base + 2}, {1, 3, 1.5, 1}}, type, Reduction::kOnce)[0];
  CHECK(sum == std::vector<double>{base, base + 4, base + 2, base + 4});
}

TEST_CASE("nccl: integers wrap around") {
  using emulation::Reduction;
  CHECK(sums({{100, -128}, {100, -1}}, ncclInt8, Reduction::kOnce)[1] == std::vector<double>{-56, 127});
  CHECK(sums({{200}, {100}}, ncclUint8, Reduction::kRing)[0] == std::vector<double>{44});
  CHECK(sums({{2147483647.0}, {1}}, ncclInt32, Reduction::kTree)[0] == std::vector<double>{-2147483648.0});
  CHECK(sums({{65536}, {65537}}, ncclUint32, Reduction::kOnce, ncclProd)[0] == std::vector<double>{65536});
}

TEST_CASE("nccl: each order of a sum is within its bound, the same on all ranks, and not another one's") {
  using emulation::Reduction;
  const int count = GENERATE(2, 3, 4, 8);
  const ncclDataType_t type = GENERATE(ncclFloat16, ncclBfloat16, ncclFloat32);
  // Half the distance of neighbours, relative to a number.
  const double unit = type == ncclFloat16 ? 0x1p-11 : type == ncclBfloat16 ? 0x1p-8 : 0x1p-24;
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> between(0.5, 1);
  std::vector<std::vector<double>> values(static_cast<size_t>(count));
  for (std::vector<double>& one : values) {
    for (int i = 0; i < 1000; ++i) one.push_back(between(random));
    one = decode(type, encode(type, one));
  }
  std::vector<std::vector<double>> first;
  for (const Reduction order : {Reduction::kOnce, Reduction::kRing, Reduction::kTree}) {
    INFO("order " << static_cast<int>(order) << ", ranks " << count << ", type " << static_cast<int>(type));
    const std::vector<std::vector<double>> results = sums(values, type, order);
    for (const std::vector<double>& result : results) CHECK(result == results[0]);
    // Sums of `count` numbers below 1, rounded so often; and in fp32 before, at kOnce.
    int roundings = order == Reduction::kOnce ? 1 : count - 1;
    if (order == Reduction::kTree) roundings = static_cast<int>(std::ceil(std::log2(count)));
    const double tolerance = count * (roundings * unit * (1 + count * unit) + (count - 1) * 0x1p-24);
    double largest = 0;
    for (size_t i = 0; i < results[0].size(); ++i) {
      double exact = 0;
      for (const std::vector<double>& one : values) exact += one[i];
      largest = std::max(largest, std::fabs(results[0][i] - exact));
      REQUIRE(std::fabs(results[0][i] - exact) <= tolerance);
    }
    CHECK(largest > unit / 4);  // it was rounded at all
    first.push_back(results[0]);
  }
  // Of two numbers there is one sum.
  CHECK((first[0] != first[1]) == (count > 2));
  CHECK((first[0] != first[2]) == (count > 2 && !(type == ncclFloat32 && count == 3)));
  CHECK((first[1] != first[2]) == (count > 2));
}

TEST_CASE("nccl: averages are within their bound in every order") {
  using emulation::Reduction;
  const Reduction order = GENERATE(Reduction::kOnce, Reduction::kRing, Reduction::kTree);
  for (const int count : {1, 2, 3, 8}) {
    emulation::Options options = machine(count);
    options.nccl.reduction = order;
    emulation::restart(options);
    const DeviceRanks ranks(count);
    // Inputs up to 16: each is scaled by a rounded number, rounded, and added.
    const double tolerance = 16.0 * 0x1p-11 * (2 + count);
    CHECK(run(ranks, {.operation = Operation::kAllReduce, .type = ncclFloat16, .reduction = ncclAvg, .count = 500},
              tolerance) == "");
  }
}

TEST_CASE("nccl: one process, many orders: two streams a rank, in any order, give the same") {
  for (const uint64_t seed : seeds_to_try(200)) {
    INFO("seed " << seed);
    const int count = 2 + static_cast<int>(seed % 3);
    emulation::restart(machine(count, seed));
    DeviceRanks ranks(count);
    std::vector<cudaStream_t> second(static_cast<size_t>(count));
    ranks.each([&](int rank) {
      need(cudaStreamCreateWithFlags(&second[static_cast<size_t>(rank)], cudaStreamNonBlocking), "cudaStreamCreate");
    });
    const auto first_parts = parts_of(ranks, {.operation = Operation::kAllReduce, .type = ncclInt32, .count = 50});
    const auto second_parts =
        parts_of(ranks, {.operation = Operation::kAllGather, .type = ncclFloat16, .count = 11, .in_place = true});
    for (int turn = 0; turn < 3; ++turn) {
      ranks.grouped([&](int rank) {
        const auto r = static_cast<size_t>(rank);
        first_parts[r]->refill(turn, ranks.streams[r]);
        second_parts[r]->refill(turn, second[r]);
        need(first_parts[r]->call(ranks.communicators[r], ranks.streams[r]), "ncclAllReduce");
        need(second_parts[r]->call(ranks.communicators[r], second[r]), "ncclAllGather");
      });
      ranks.each([&](int rank) {
        CHECK(first_parts[static_cast<size_t>(rank)]->difference() == "");
        CHECK(second_parts[static_cast<size_t>(rank)]->difference() == "");
      });
    }
    ranks.destroy();
    CHECK(all_reports() == "");
  }
}

TEST_CASE("nccl: captured collectives work at every replay, with what is in memory then") {
  for (const uint64_t seed : seeds_to_try(5)) {
    INFO("seed " << seed);
    const int count = 3;
    emulation::restart(machine(count, seed));
    DeviceRanks ranks(count);
    const auto sums_parts = parts_of(ranks, {.operation = Operation::kAllReduce, .type = ncclBfloat16, .count = 99});
    const auto scattered =
        parts_of(ranks, {.operation = Operation::kReduceScatter, .type = ncclFloat32, .count = 20, .in_place = true});
    std::vector<cudaGraph_t> graphs(3);
    std::vector<cudaGraphExec_t> executables(3);
    ranks.each([&](int rank) {
      need(cudaStreamBeginCapture(ranks.streams[static_cast<size_t>(rank)], cudaStreamCaptureModeThreadLocal),
           "cudaStreamBeginCapture");
    });
    ranks.grouped([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      need(sums_parts[r]->call(ranks.communicators[r], ranks.streams[r]), "ncclAllReduce");
      need(scattered[r]->call(ranks.communicators[r], ranks.streams[r]), "ncclReduceScatter");
    });
    ranks.each([&](int rank) {
      const auto r = static_cast<size_t>(rank);
      need(cudaStreamEndCapture(ranks.streams[r], &graphs[r]), "cudaStreamEndCapture");
      need(cudaGraphInstantiate(&executables[r], graphs[r], 0), "cudaGraphInstantiate");
      need(cudaGraphDestroy(graphs[r]), "cudaGraphDestroy");
    });
    for (int turn = 0; turn < 20; ++turn) {
      ranks.each([&](int rank) {
        const auto r = static_cast<size_t>(rank);
        sums_parts[r]->refill(turn, ranks.streams[r]);
        scattered[r]->refill(turn, ranks.streams[r]);
        need(cudaGraphLaunch(executables[r], ranks.streams[r]), "cudaGraphLaunch");
      });
      ranks.each([&](int rank) {
        CHECK(sums_parts[static_cast<size_t>(rank)]->difference() == "");
        CHECK(scattered[static_cast<size_t>(rank)]->difference() == "");
      });
    }
    ranks.each(
        [&](int rank) { need(cudaGraphExecDestroy(executables[static_cast<size_t>(rank)]), "cudaGraphExecDestroy"); });
    ranks.destroy();
    CHECK(all_reports() == "");
  }
}

}  // namespace shardscope::test
