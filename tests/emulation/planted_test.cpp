// The checker is tested: every planted bug (planted/) must be reported, in first-come order and in random orders, with
// the right fault, kernel, thread and line; its sound twin must give no report and the right result. `planted_plain`
// and `planted_checked` with "[table]" print how each bug is found.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/emulation/planted/planted.hpp"
#include "tests/emulation/seeds.hpp"

namespace shardscope::planted {
namespace {

using emulation::Fault;
using emulation::Report;

constexpr uint64_t kBugSeeds = 5;
constexpr uint64_t kTwinSeeds = 20;

struct Outcome {
  std::vector<Report> reports;
  cudaError_t error = cudaSuccess;
  cudaError_t later_error = cudaSuccess;  // of a call after the scenario
  bool right = false;
};

Outcome run(const Bug& bug, bool planted, uint64_t seed) {
  emulation::restart({.seed = seed, .devices = bug.devices, .multiprocessors = bug.multiprocessors});
  Stand stand(planted);
  Outcome outcome;
  const bool right = bug.scenario(stand);
  outcome.error = stand.error();
  outcome.right = right && outcome.error == cudaSuccess;
  outcome.later_error = cudaDeviceSynchronize();
  outcome.reports = emulation::take_reports();
  return outcome;
}

std::vector<BugFile> all_files() {
  return {shared_memory_bugs(),   warp_bugs(),   copy_bugs(),     bounds_bugs(), width_bugs(),
          block_order_bugs(),     atomic_bugs(), protocol_bugs(), stream_bugs(), device_bugs(),
          dependent_launch_bugs()};
}

/// Where the report must point: `all` lines must be named, and one of `either` if there is any.
struct Marks {
  std::vector<int> all;
  std::vector<int> either;
};

/// The lines of `path` that end in "planted: … NAME …" or "planted, either: … NAME …".
Marks marks_of(const std::string& path, const Bug& bug) {
  const std::string_view name = bug.mark.empty() ? bug.name : bug.mark;
  Marks marks;
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto listed = [&](std::string_view mark) {
      const size_t begin = line.find(mark);
      if (begin == std::string::npos) return false;
      return (line.substr(begin + mark.size()) + " ").find(fmt::format(" {} ", name)) != std::string::npos;
    };
    if (listed("// planted:")) marks.all.push_back(number);
    if (listed("// planted, either:")) marks.either.push_back(number);
  }
  return marks;
}

/// Whether `message` names this line of the file, and not one whose number begins alike.
bool names_line(const std::string& message, const std::string& path, int line) {
  const std::string place = fmt::format("{}:{}", path.substr(path.rfind('/') + 1), line);
  for (size_t at = message.find(place); at != std::string::npos; at = message.find(place, at + 1)) {
    const size_t end = at + place.size();
    if (end == message.size() || std::isdigit(static_cast<unsigned char>(message[end])) == 0) return true;
  }
  return false;
}

/// The error that the runtime then gives.
cudaError_t error_of(Fault fault) {
  switch (fault) {
    case Fault::kMisaligned:
      return cudaErrorMisalignedAddress;
    case Fault::kOutOfBounds:
    case Fault::kUseAfterFree:
    case Fault::kHostMemory:
    case Fault::kPeerAccess:
      return cudaErrorIllegalAddress;
    case Fault::kForeignLocal:
    case Fault::kUninitialised:
    case Fault::kSharedRace:
    case Fault::kGlobalRace:
    case Fault::kDivergentBarrier:
    case Fault::kDivergentWarp:
    case Fault::kPendingCopy:
    case Fault::kTrap:
      return cudaErrorLaunchFailure;
    case Fault::kNoProgress:
      return cudaErrorLaunchTimeout;
    case Fault::kHostRace:
    case Fault::kLifetime:
    case Fault::kRankMismatch:
      break;  // no kernel's
  }
  return cudaErrorUnknown;
}

/// Empty if the outcome is the one report that the bug must give; else what is wrong with it.
std::string complaint(const Bug& bug, const std::string& path, const Outcome& outcome) {
  if (outcome.reports.size() != 1) {
    return fmt::format("{} reports instead of one, the result is {}", outcome.reports.size(),
                       outcome.right ? "right" : "wrong");
  }
  const Report& report = outcome.reports[0];
  const std::string text = fmt::format("{}: {}: {}", emulation::name(report.fault), report.kernel, report.message);
  if (report.fault != *bug.fault) return fmt::format("not {}: {}", emulation::name(*bug.fault), text);
  const std::string kernel(bug.kernel.empty() ? bug.name : bug.kernel);
  if (text.find(kernel) == std::string::npos) return fmt::format("does not name {}: {}", kernel, text);
  if (text.find("thread") == std::string::npos) return fmt::format("names no thread: {}", text);
  if (text.find('\n') != std::string::npos) return fmt::format("more than one line: {}", text);
  const Marks marks = marks_of(path, bug);
  const auto named = [&](int line) { return names_line(report.message, path, line); };
  for (const int line : marks.all) {
    if (!named(line)) return fmt::format("does not name line {}: {}", line, text);
  }
  if (!marks.either.empty() && std::none_of(marks.either.begin(), marks.either.end(), named)) {
    return fmt::format("names none of the lines {}: {}", fmt::join(marks.either, ", "), text);
  }
  if (outcome.error != error_of(report.fault) || outcome.later_error != outcome.error) {
    return fmt::format("the runtime gives {}, then {}, instead of {}: {}", cudaGetErrorName(outcome.error),
                       cudaGetErrorName(outcome.later_error), cudaGetErrorName(error_of(report.fault)), text);
  }
  return "";
}

}  // namespace

TEST_CASE("planted bugs: each is marked in its source and has a name of its own") {
  std::set<std::string_view> names;
  for (const BugFile& file : all_files()) {
    for (const Bug& bug : file.bugs) {
      INFO(bug.name);
      CHECK(names.insert(bug.name).second);
      const Marks marks = marks_of(std::string(file.path), bug);
      CHECK((bug.fault.has_value() || bug.plain == Plain::kWrongResult));
      CHECK(bug.fault.has_value() == !(marks.all.empty() && marks.either.empty()));
    }
  }
  CHECK(names.size() >= 50);
}

TEST_CASE("planted bugs: the checker reports each with its fault, kernel, thread and line") {
  if (!emulation::checked()) return;  // the plain mode's part is below
  for (const BugFile& file : all_files()) {
    for (const Bug& bug : file.bugs) {
      DYNAMIC_SECTION(bug.name) {
        int found = 0;
        const uint64_t seeds = bug.orders == Orders::kSome ? kTwinSeeds : kBugSeeds;
        for (const uint64_t seed : test::seeds_to_try(seeds)) {
          const Outcome outcome = run(bug, true, seed);
          if (!bug.fault) {
            CHECK(outcome.reports.empty());
            CHECK_FALSE(outcome.right);
            continue;
          }
          if (bug.orders == Orders::kSome && outcome.reports.empty()) continue;
          ++found;
          INFO("seed " << seed);
          CHECK(complaint(bug, std::string(file.path), outcome) == "");
        }
        if (bug.fault) CHECK(found > 0);
      }
    }
  }
}

TEST_CASE("planted bugs: what the plain mode must notice, it notices") {
  if (emulation::checked()) return;
  for (const BugFile& file : all_files()) {
    for (const Bug& bug : file.bugs) {
      if (bug.plain == Plain::kNothing || bug.plain == Plain::kNotRun) continue;
      DYNAMIC_SECTION(bug.name) {
        int wrong = 0;
        for (const uint64_t seed : test::seeds_to_try(kBugSeeds)) {
          const Outcome outcome = run(bug, true, seed);
          INFO("seed " << seed);
          if (bug.plain == Plain::kReport) CHECK(complaint(bug, std::string(file.path), outcome) == "");
          if (!outcome.right) ++wrong;
        }
        CHECK(wrong > 0);
      }
    }
  }
}

TEST_CASE("planted bugs: their sound twins give no report and the right result") {
  for (const BugFile& file : all_files()) {
    for (const Bug& bug : file.bugs) {
      DYNAMIC_SECTION(bug.name) {
        for (const uint64_t seed : test::seeds_to_try(kTwinSeeds)) {
          const Outcome outcome = run(bug, false, seed);
          INFO("seed " << seed);
          CHECK(outcome.error == cudaSuccess);
          CHECK((outcome.reports.empty() ? "" : outcome.reports[0].message) == "");
          CHECK(outcome.right);
          for (const emulation::KernelCounters& counters : emulation::counters()) {
            INFO(counters.kernel);
            CHECK((counters.accesses > 0) == emulation::checked());  // it was looked at
          }
        }
      }
    }
  }
}

TEST_CASE("planted bugs: table of how each is found", "[.][table]") {
  constexpr uint64_t kOrders = 20;
  fmt::print("{:30} {:18} {:20} random orders of {}\n", "planted bug", "expected", "first come, first served", kOrders);
  for (const BugFile& file : all_files()) {
    for (const Bug& bug : file.bugs) {
      if (!emulation::checked() && bug.plain == Plain::kNotRun) continue;
      const auto finding = [&](uint64_t seed) -> std::string {
        const Outcome outcome = run(bug, true, seed);
        if (!outcome.reports.empty()) return std::string(emulation::name(outcome.reports[0].fault));
        return outcome.right ? "-" : "wrong result";
      };
      const std::string first = finding(0);
      std::map<std::string, int> random;
      for (uint64_t seed = 1; seed <= kOrders; ++seed) ++random[finding(seed)];
      std::string summary;
      for (const auto& [what, times] : random)
        summary += fmt::format("{}{} x {}", summary.empty() ? "" : ", ", what, times);
      fmt::print("{:30} {:18} {:20} {}\n", bug.name, bug.fault ? emulation::name(*bug.fault) : "wrong result", first,
                 summary);
    }
  }
}

}  // namespace shardscope::planted
