// Planted bugs that need processes: what ends one (the host touches device memory), and memory that two share.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "tests/emulation/planted_host/process_bugs.hpp"
#include "tests/emulation/processes.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Policy;
using emulation::Report;
using test::Outcome;
using test::Rank;

constexpr std::chrono::seconds kLimit(30);

// ---- deaths ---------------------------------------------------------------------------------------------------------

/// What the host does to its device memory, or a kernel that is not checked to memory that is not there.
struct Deadly {
  std::string_view name;
  std::string_view says;  // on standard error
  void (*act)(HostStand&, float* numbers);
  bool of_a_kernel = false;
};

volatile float sink = 0;

const Deadly kDeadly[] = {
    {"the host reads", "the host, not a kernel, touched byte 8 of allocation 1 (256 bytes, device 0, weights)",
     [](HostStand&, float* numbers) { sink = numbers[2]; }},
    {"the host writes", "the host, not a kernel, touched byte 0 of allocation 1",
     [](HostStand&, float* numbers) { numbers[0] = 1; }},
    {"the host copies", "the host, not a kernel, touched byte",
     [](HostStand&, float* numbers) {
       std::vector<float> copy(HostStand::kCount);
       std::memcpy(copy.data(), numbers, HostStand::kBytes);
       sink = copy[1];
     }},
    {"the host reads while work is pending", "the host, not a kernel, touched byte 0 of allocation 1",
     [](HostStand& stand, float* numbers) {
       stand.note(cudaMemsetAsync(numbers, 0, HostStand::kBytes, nullptr));
       sink = numbers[0];
     }},
    {"the host reads what was freed", "of allocation 1 (256 bytes, device 0, weights), which was freed",
     [](HostStand& stand, float* numbers) {
       stand.note(cudaFree(numbers));
       sink = numbers[0];
     }},
    {"a kernel reads what was freed", "a kernel touched byte",
     [](HostStand& stand, float* numbers) {
       float* const out = stand.filled(0);
       stand.note(cudaFree(numbers));
       stand.combine(numbers, 1, numbers, out, nullptr);
       stand.finish();
     },
     true},
};

}  // namespace

TEST_CASE("planted host bugs: a host that touches device memory dies, and the last line says what it touched") {
  for (const Deadly& row : kDeadly) {
    if (row.of_a_kernel && emulation::checked()) continue;  // the checker sees it first
    for (const Policy policy : {Policy::kAtSynchronisation, Policy::kWorker}) {
      INFO(row.name);
      const std::vector<Outcome> outcomes = test::run_in_processes(
          1, {.policy = policy},
          [&](const Rank& rank) {
            HostStand stand;
            float* const numbers = stand.filled(1);
            emulation::label(numbers, "weights");
            rank.expect(stand.error() == cudaSuccess, "no error before");
            row.act(stand, numbers);
          },
          kLimit);
      INFO(outcomes[0].description());
      CHECK(outcomes[0].end == Outcome::End::kSignal);
      CHECK(outcomes[0].signal == SIGSEGV);
      CHECK(outcomes[0].output.find(row.says) != std::string::npos);
      // Where, by its source file; a copy faults in the C library, whose sources may be unknown.
      if (row.name != std::string_view("the host copies")) CHECK(outcomes[0].output.find(".c") != std::string::npos);
    }
  }
}

TEST_CASE("planted host bugs: a host that asks before it touches lives") {
  test::in_processes(1, {}, [](const Rank& rank) {
    HostStand stand;
    float* const numbers = stand.filled(1);
    auto* const pinned = stand.pinned<float>(HostStand::kCount, 0);
    stand.note(cudaMemcpyAsync(pinned, numbers, HostStand::kBytes, cudaMemcpyDeviceToHost, nullptr));
    stand.finish();
    rank.expect(pinned[3] == 1, "the copy");
    rank.expect(stand.error() == cudaSuccess, "no error");
  });
}

// ---- shared memory --------------------------------------------------------------------------------------------------

namespace {

std::string text_of(const std::vector<Report>& reports) {
  std::string text;
  for (const Report& report : reports) text += fmt::format("[{}] {}; ", emulation::name(report.fault), report.message);
  return text;
}

/// Runs the bug's part of this rank and fails the rank unless it saw what it should.
void run(const ProcessBug& bug, bool planted, const Rank& rank) {
  HostStand stand(planted);
  stand.select(rank.rank());
  const bool right = bug.scenario(stand, rank);
  const bool sees = planted && rank.rank() == bug.who;
  const bool reports =
      planted && (rank.rank() == bug.who ? bug.fault && (emulation::checked() || bug.plain == Plain::kReport)
                                         : bug.other_fault.has_value());
  if (reports || !sees || !bug.fault) {
    const cudaError_t later = cudaDeviceSynchronize();
    if (bug.error == cudaSuccess || bug.fault) stand.note(later);
  }
  const std::vector<Report> found = emulation::take_reports();
  const std::string seen = fmt::format("{}, {}, {}, {}", right ? "right" : "wrong", cudaGetErrorName(stand.error()),
                                       stand.refusal(), text_of(found));
  if (reports) {
    const auto fault = rank.rank() == bug.who ? *bug.fault : *bug.other_fault;
    rank.expect(found.size() == 1 && found[0].fault == fault, "one report of the right fault: " + seen);
    rank.expect(rank.rank() != bug.who || found[0].message.find(bug.message) != std::string::npos,
                "a report that names it: " + seen);
    rank.expect(stand.error() != cudaSuccess, "an error of the runtime: " + seen);
    return;
  }
  rank.expect(found.empty(), "no report: " + seen);
  if (!sees) {
    rank.expect(right && stand.error() == cudaSuccess, "the right result and no error: " + seen);
  } else if (bug.fault) {
    rank.expect(stand.error() == cudaSuccess, "no error: " + seen);
  } else if (bug.error != cudaSuccess) {
    rank.expect(stand.error() == bug.error, fmt::format("{}: {}", cudaGetErrorName(bug.error), seen));
    rank.expect(right && stand.refusal().find(bug.refusal) != std::string::npos, "the reason: " + seen);
  } else {
    rank.expect(!right, "a wrong result: " + seen);
  }
}

}  // namespace

TEST_CASE("planted bugs between processes: each is refused, reported or goes wrong, its sound twin passes") {
  for (const ProcessBug& bug : ipc_bugs()) {
    for (const bool planted : {false, true}) {
      if (planted && bug.fault && bug.plain == Plain::kNotRun && !emulation::checked()) continue;
      for (const uint64_t seed : {1, 2}) {
        INFO(bug.name << (planted ? ", planted" : ", sound") << ", seed " << seed);
        emulation::Options options{.seed = seed, .devices = 2, .policy = Policy::kWorker};
        if (bug.prepare != nullptr) bug.prepare(options, planted);
        test::in_processes(
            2, options, [&](const Rank& rank) { run(bug, planted, rank); }, kLimit);
      }
    }
  }
}

}  // namespace shardscope::planted_host
