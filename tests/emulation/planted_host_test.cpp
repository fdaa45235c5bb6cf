// The stand-ins are tested: every host program with a planted bug (planted_host/) must be refused, reported or give a
// wrong result, as its row says, in first-come order and in random ones; its sound twin must pass, with the right
// result, in all. `host_test_plain` and `host_test_checked` with "[host-table]" print how each is found.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "tests/emulation/planted_host/planted_host.hpp"
#include "tests/emulation/seeds.hpp"

namespace shardscope::planted_host {
namespace {

using emulation::Report;

constexpr uint64_t kBugSeeds = 20;
constexpr uint64_t kTwinSeeds = 20;

struct Outcome {
  bool right = false;
  cudaError_t error = cudaSuccess;
  std::string refusal;
  std::vector<Report> reports;
};

Outcome run(const HostBug& bug, bool planted, uint64_t seed) {
  emulation::Options options{.seed = seed, .devices = bug.devices, .model = std::string(bug.model)};
  if (bug.prepare != nullptr) bug.prepare(options, planted);
  emulation::restart(options);
  HostStand stand(planted);
  Outcome outcome;
  outcome.right = bug.scenario(stand);
  const cudaError_t later = cudaDeviceSynchronize();
  if (bug.error == cudaSuccess || bug.fault) stand.note(later);
  outcome.error = stand.error();
  outcome.refusal = stand.refusal();
  outcome.reports = emulation::take_reports();
  return outcome;
}

std::vector<HostBug> all_bugs() {
  std::vector<HostBug> all;
  for (const auto& some : {order_bugs(), product_bugs(), memory_bugs(), launch_bugs(), capture_bugs(), peer_bugs()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::string text_of(const std::vector<Report>& reports) {
  std::string text;
  for (const Report& report : reports) text += fmt::format("[{}] {}; ", emulation::name(report.fault), report.message);
  return text;
}

/// Whether this program has to report the bug.
bool reports(const HostBug& bug) {
  return bug.fault && (emulation::checked() || bug.plain == Plain::kReport);
}
/// Whether the result has to be wrong in some orders.
bool goes_wrong(const HostBug& bug) {
  if (bug.fault) return !emulation::checked() && bug.plain == Plain::kWrongResult;
  return bug.error == cudaSuccess;
}

/// Empty if the outcome is one that the bug must or may have.
std::string complaint(const HostBug& bug, const Outcome& outcome) {
  if (reports(bug)) {
    if (outcome.reports.size() != 1) return fmt::format("{} reports", outcome.reports.size());
    if (outcome.reports[0].fault != *bug.fault) return "another fault";
    if (outcome.reports[0].message.find(bug.message) == std::string::npos) return "the report does not name it";
    if (outcome.reports[0].message.find('\n') != std::string::npos) return "a report of several lines";
  } else if (!outcome.reports.empty()) {
    return "a report";
  }
  const cudaError_t error = bug.fault && !reports(bug) ? cudaSuccess : bug.error;
  if (outcome.error != error) {
    return fmt::format("{} instead of {}", cudaGetErrorName(outcome.error), cudaGetErrorName(error));
  }
  if (bug.error != cudaSuccess && !bug.fault) {
    if (outcome.refusal.empty()) return "no reason for the refusal";
    if (outcome.refusal.find(bug.refusal) == std::string::npos) return "the refusal does not say why";
    if (!outcome.right) return "something else is not as it should be";
  }
  return "";
}

}  // namespace

TEST_CASE("planted host bugs: each has a name of its own") {
  std::set<std::string_view> names;
  for (const HostBug& bug : all_bugs()) {
    INFO(bug.name);
    CHECK(names.insert(bug.name).second);
    // A row that only expects an error says why it is refused, too.
    if (bug.error != cudaSuccess && !bug.fault) CHECK(!bug.refusal.empty());
  }
  CHECK(names.size() > 60);
}

TEST_CASE("planted host bugs: each is refused, reported or goes wrong, as its row says") {
  for (const HostBug& bug : all_bugs()) {
    if (!emulation::checked() && bug.fault && bug.plain == Plain::kNotRun) continue;
    int64_t wrong = 0;
    for (const uint64_t seed : test::seeds_to_try(kBugSeeds)) {
      const Outcome outcome = run(bug, true, seed);
      INFO(bug.name << ", seed " << seed << ": " << cudaGetErrorName(outcome.error) << ", " << outcome.refusal << ", "
                    << text_of(outcome.reports));
      CHECK(complaint(bug, outcome) == "");
      wrong += outcome.right ? 0 : 1;
      if (!goes_wrong(bug) && seed >= 5) break;
    }
    INFO(bug.name);
    if (goes_wrong(bug)) CHECK(wrong > 0);
  }
}

TEST_CASE("planted host bugs: the sound twin of each passes in every order") {
  for (const HostBug& bug : all_bugs()) {
    for (const uint64_t seed : test::seeds_to_try(kTwinSeeds)) {
      const Outcome outcome = run(bug, false, seed);
      INFO(bug.name << ", seed " << seed << ": " << cudaGetErrorName(outcome.error) << ", " << outcome.refusal << ", "
                    << text_of(outcome.reports));
      CHECK(outcome.right);
      CHECK(outcome.error == cudaSuccess);
      CHECK(outcome.reports.empty());
    }
  }
}

TEST_CASE("peer access that loses writes: the writer sees what it wrote, the owner does not, the other way all works") {
  emulation::MachineTable table = emulation::make_table("h100", 2);
  table.peers[0][1] = emulation::PeerAccess::kLosesWrites;
  for (const uint64_t seed : test::seeds_to_try(3)) {
    for (const int writer : {0, 1}) {
      INFO("seed " << seed << ", device " << writer << " writes");
      emulation::restart({.seed = seed, .table = table});
      HostStand stand;
      const int owner = 1 - writer;
      stand.select(owner);
      float* const theirs = stand.filled(9);
      stand.select(writer);
      float* const read_back = stand.filled(0);
      stand.note(cudaDeviceEnablePeerAccess(owner, 0));
      stand.note(write_and_read_back(theirs, 5, read_back, HostStand::kCount, nullptr));
      CHECK(stand.holds(read_back, 5));  // the proof that proves nothing
      stand.select(owner);
      CHECK(stand.holds(theirs, writer == 0 ? 9 : 5));
      CHECK(stand.error() == cudaSuccess);
      CHECK(text_of(emulation::take_reports()) == "");
    }
  }
}

TEST_CASE("planted host bugs: how each is found", "[.][host-table]") {
  for (const HostBug& bug : all_bugs()) {
    if (!emulation::checked() && bug.fault && bug.plain == Plain::kNotRun) continue;
    int64_t wrong = 0;
    Outcome last;
    for (uint64_t seed = 0; seed <= kBugSeeds; ++seed) {
      last = run(bug, true, seed);
      wrong += last.right ? 0 : 1;
    }
    fmt::print("{:34} wrong {:2}/{}  {}  {}  {}\n", bug.name, wrong, kBugSeeds + 1, cudaGetErrorName(last.error),
               last.refusal, text_of(last.reports));
  }
}

}  // namespace shardscope::planted_host
