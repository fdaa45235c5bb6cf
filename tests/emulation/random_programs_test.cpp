// The race check against an oracle: programs made up at random run in the emulation, and what happened before what is
// computed a second time, from the record of which store each load has seen, as reachability in a graph of all steps.
// The checker must report a race exactly where the graph has two conflicting accesses without a path between them.
#include <catch2/catch.hpp>

#include <bitset>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulation/emulation.hpp"
#include "tests/emulation/probes/program.hpp"
#include "tests/emulation/stand.hpp"

namespace shardscope::test {
namespace {

using probes::Act;
using probes::kActors;
using probes::kFlags;
using probes::kGlobalVariables;
using probes::kProgramBlocks;
using probes::kProgramSteps;
using probes::kSharedVariables;
using probes::Program;
using probes::Step;

constexpr int kAllActors = kProgramBlocks * kActors;
constexpr int kEvents = kAllActors * kProgramSteps;

/// The shadow memory keeps two reads of a place, so a write may race with a third unseen (in one of some hundred
/// programs with many readers of one variable). Here a variable has as many readers as are kept.
constexpr size_t kMostReaders = 2;

Program random_program(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](int bound) { return static_cast<int>(random() % static_cast<uint32_t>(bound)); };
  Program program{};
  std::map<std::pair<int, int>, std::set<int>> readers;  // (block or -1, variable) -> actors
  uint16_t next_value = 1;
  // In hundredths of the steps. With few accesses many programs are sound, with many hardly any.
  const int reads = 2 + below(7);
  const int accesses = reads + 1 + below(7);
  const int barriers = 10 + below(20);
  const int variables = below(3) == 0 ? 1 : kGlobalVariables + kSharedVariables;
  for (int block = 0; block < kProgramBlocks; ++block) {
    for (int i = 0; i < kProgramSteps; ++i) {
      const int together = below(100);
      for (int actor = 0; actor < kActors; ++actor) {
        Step& step = program.steps[block][actor][i];
        step.value = next_value++;
        if (together < barriers) {
          step.act = together < barriers * 2 / 3 ? Act::kBarrier : Act::kSyncWarp;
          continue;
        }
        const int choice = below(100);
        step.act = choice < reads           ? Act::kRead
                   : choice < accesses      ? Act::kWrite
                   : choice < accesses + 10 ? Act::kReleaseStore
                   : choice < accesses + 22 ? Act::kAcquireLoad
                   : choice < accesses + 27 ? Act::kRelaxedLoad
                   : choice < accesses + 34 ? Act::kExchange
                   : choice < accesses + 44 ? Act::kFence
                                            : Act::kNothing;
        const bool plain = step.act == Act::kRead || step.act == Act::kWrite;
        step.target = static_cast<uint8_t>(below(plain ? variables : kFlags));
        if (step.act != Act::kRead) continue;
        std::set<int>& actors = readers[{step.target < kGlobalVariables ? -1 : block, step.target}];
        if (actors.size() >= kMostReaders && actors.count(block * kActors + actor) == 0) step.act = Act::kNothing;
        if (step.act == Act::kRead) actors.insert(block * kActors + actor);
      }
    }
  }
  return program;
}

/// Which steps have a path to which, from a program and the record of its run.
class Oracle {
 public:
  Oracle(const Program& program, const std::vector<uint32_t>& records) : program_(program), records_(records) {
    for (int event = 0; event < kEvents; ++event) {
      if (writes_flag(step(event).act) && ended(event)) writers_[step(event).value] = event;
    }
    for (int event = 0; event < kEvents; ++event) {
      if (happened(event)) add_edges_to(event);
    }
    close();
  }

  /// Two conflicting accesses without an order between them; empty if there are none.
  std::string race() const {
    for (int a = 0; a < kEvents; ++a) {
      for (int b = a + 1; b < kEvents; ++b) {
        if (happened(a) && happened(b) && conflict(a, b) && !reaches_[a][b] && !reaches_[b][a]) {
          return "steps " + std::to_string(a) + " and " + std::to_string(b);
        }
      }
    }
    return "";
  }

 private:
  static int actor(int event) { return event / kProgramSteps; }
  static int block(int event) { return actor(event) / kActors; }
  static int index(int event) { return event % kProgramSteps; }
  const Step& step(int event) const { return program_.steps[block(event)][actor(event) % kActors][index(event)]; }
  static bool writes_flag(Act act) { return act == Act::kReleaseStore || act == Act::kExchange; }
  static bool is_plain(Act act) { return act == Act::kRead || act == Act::kWrite; }

  bool ended(int event) const { return records_[static_cast<size_t>(event)] != 0; }
  /// Ended, or a plain access that its actor had come to when the run was stopped.
  bool happened(int event) const {
    return ended(event) || (is_plain(step(event).act) && (index(event) == 0 || ended(event - 1)));
  }

  bool conflict(int a, int b) const {
    const Step& first = step(a);
    const Step& second = step(b);
    return actor(a) != actor(b) && is_plain(first.act) && is_plain(second.act) && first.target == second.target &&
           (first.act == Act::kWrite || second.act == Act::kWrite) &&
           (first.target < kGlobalVariables || block(a) == block(b));
  }

  /// The last fence of the actor before `event`, or -1.
  int fence_before(int event) const {
    for (int e = event - 1; e >= 0 && actor(e) == actor(event); --e) {
      if (step(e).act == Act::kFence) return e;
    }
    return -1;
  }
  int fence_after(int event) const {
    for (int e = event + 1; e < kEvents && actor(e) == actor(event); ++e) {
      if (step(e).act == Act::kFence) return ended(e) ? e : -1;
    }
    return -1;
  }

  /// The steps whose past whoever sees this value may come to know: the release that stored it, or the fence before the
  /// exchange that did, and then also those of the value that the exchange replaced.
  std::vector<int> published_by(uint32_t value) const {
    std::vector<int> steps;
    for (auto writer = writers_.find(value); writer != writers_.end();) {
      const int event = writer->second;
      if (step(event).act == Act::kReleaseStore) {
        steps.push_back(event);
        break;
      }
      if (const int fence = fence_before(event); fence >= 0) steps.push_back(fence);
      writer = writers_.find(records_[static_cast<size_t>(event)] - 1);
    }
    return steps;
  }

  void add_edges_to(int event) {
    if (index(event) > 0) reaches_[event - 1][event] = true;
    const Act act = step(event).act;
    if (act == Act::kAcquireLoad || act == Act::kRelaxedLoad || act == Act::kExchange) {
      // Without an acquire what is seen counts from the actor's next fence on.
      const int learner = act == Act::kAcquireLoad ? event : fence_after(event);
      for (const int source : published_by(records_[static_cast<size_t>(event)] - 1)) {
        if (learner >= 0) reaches_[source][learner] = true;
      }
    }
    if (index(event) == 0) return;
    const Act before = step(event - 1).act;
    if (before != Act::kBarrier && before != Act::kSyncWarp) return;
    for (int peer = 0; peer < kActors; ++peer) {
      if (before == Act::kSyncWarp && (peer == 2 || actor(event) % kActors == 2)) continue;
      reaches_[(block(event) * kActors + peer) * kProgramSteps + index(event) - 1][event] = true;
    }
  }

  void close() {
    for (int via = 0; via < kEvents; ++via) {
      for (int from = 0; from < kEvents; ++from) {
        if (reaches_[from][via]) reaches_[from] |= reaches_[via];
      }
    }
  }

  const Program& program_;
  const std::vector<uint32_t>& records_;  // [event]
  std::map<uint32_t, int> writers_;       // value of a flag -> the step that stored it
  std::vector<std::bitset<kEvents>> reaches_ = std::vector<std::bitset<kEvents>>(kEvents);
};

}  // namespace

TEST_CASE("race check: reports exactly the random programs in which an order is missing") {
  if (!emulation::checked()) return;
  constexpr uint32_t kPrograms = 400;
  int racing = 0;
  int sound = 0;
  for (uint32_t number = 0; number < kPrograms; ++number) {
    const Program program = random_program(number);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      emulation::restart({.seed = seed == 0 ? 0 : number * 2 + seed});
      Stand stand;
      void* pinned = nullptr;
      REQUIRE(cudaHostAlloc(&pinned, kEvents * sizeof(uint32_t), cudaHostAllocDefault) == cudaSuccess);
      auto* const records = static_cast<uint32_t*>(pinned);
      for (int event = 0; event < kEvents; ++event) records[event] = 0;
      stand.note(probes::run_program(stand.upload(std::vector<Program>{program}),
                                     stand.zeros<uint32_t>(kGlobalVariables), stand.zeros<uint32_t>(kFlags), records));
      stand.finish();
      const std::vector<emulation::Report> reports = emulation::take_reports();
      const std::vector<uint32_t> seen(records, records + kEvents);
      const std::string race = Oracle(program, seen).race();
      INFO("program " << number << ", seed " << seed << ": " << (race.empty() ? "no race" : race) << "; "
                      << (reports.empty() ? "no report" : reports[0].message));
      CHECK(reports.empty() == race.empty());
      for (const emulation::Report& report : reports) {
        CHECK((report.fault == emulation::Fault::kGlobalRace || report.fault == emulation::Fault::kSharedRace));
      }
      ++(race.empty() ? sound : racing);
    }
  }
  // Both kinds must be there in numbers, or the comparison says little.
  CHECK(racing > 100);
  CHECK(sound > 100);
}

}  // namespace shardscope::test
