// Making programs up, and finding which of their waits are needed.
#include "tests/emulation/random_host_programs.hpp"

#include <algorithm>
#include <random>
#include <utility>

#include "tests/emulation/random_host_programs_planner.hpp"

namespace shardscope::test {
namespace {

using Kind = Resource::Kind;

/// The shadow memory keeps two reads of a place: a write that races with a third is not seen. Here there is none.
constexpr size_t kMostReaders = 2;

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  HostProgram make() {
    program_.devices = 1 + below(3);
    std::vector<int> device_of_stream;
    for (int device = 0; device < program_.devices; ++device) {
      const int streams = 2 + below(2);
      for (int i = 0; i < streams; ++i) {
        program_.streams.push_back(device);
        program_.workspaces.push_back(add_resource(Kind::kWorkspace, device));
      }
      const int buffers = 2 + below(2);
      for (int i = 0; i < buffers; ++i) add_resource(Kind::kBuffer, device);
      add_resource(Kind::kReplaceable, device);
    }
    const int pinned = 1 + below(3);
    for (int i = 0; i < pinned; ++i) add_resource(Kind::kPinned, 0);
    small_.assign(program_.resources.size(), true);
    defined_.assign(program_.resources.size(), true);
    const int graphs = below(3);
    for (int i = 0; i < graphs; ++i) make_graph();

    Planner planner(static_cast<int>(program_.streams.size()), program_.streams);
    const int count = 8 + below(14);
    for (int i = 0; i < count; ++i) {
      Step step = make_step(planner);
      const Accesses accesses = accesses_of(program_, step);
      for (int before = planner.missing(step, accesses); before >= 0; before = planner.missing(step, accesses)) {
        Wait wait{before};
        if (step.stream < 0) wait.how = static_cast<HostWait>(below(5));
        program_.steps[static_cast<size_t>(before)].awaited = true;
        planner.wait(step, wait);
        step.waits.push_back(wait);
      }
      planner.add(step, accesses);
      note_values(step);
      program_.steps.push_back(std::move(step));
    }
    return std::move(program_);
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }

  int add_resource(Kind kind, int device) {
    program_.resources.push_back({kind, device});
    return static_cast<int>(program_.resources.size()) - 1;
  }
  const Resource& resource(int number) const { return program_.resources[static_cast<size_t>(number)]; }

  /// One for which good(number) is true; -1 after a while.
  template <class Good>
  int pick(const Good& good) {
    for (int attempt = 0; attempt < 40; ++attempt) {
      const int number = below(static_cast<int>(program_.resources.size()));
      if (resource(number).kind != Kind::kWorkspace && good(number)) return number;
    }
    return -1;
  }
  bool readable(const Planner& planner, int number) const {
    return defined_[static_cast<size_t>(number)] && planner.readers(number) < kMostReaders;
  }

  /// A step of a stream of that device; its act is kHostRead if there was none.
  Step device_step(const Planner& planner, int stream, int device, bool in_graph, const std::vector<bool>& small) {
    const auto stays = [&](int number) { return !in_graph || resource(number).kind != Kind::kReplaceable; };
    const auto is_buffer = [&](int number) { return resource(number).kind != Kind::kPinned && stays(number); };
    Step step;
    step.stream = stream;
    step.factor = 1 + below(3);
    step.programmatic = below(3) == 0;
    const auto reads_buffer = [&](int number) { return is_buffer(number) && readable(planner, number); };
    const auto reads_matrix = [&](int number) {
      return reads_buffer(number) && resource(number).device == device && small[static_cast<size_t>(number)];
    };
    const int choice = below(12);
    if (choice < 4) {
      step.act = Act::kCombine;
      step.x = pick(reads_buffer);
      step.y = pick(reads_buffer);
      step.out = pick(is_buffer);
    } else if (choice < 6) {
      step.act = Act::kNeighbours;
      step.x = pick(reads_buffer);
      step.y = step.x;
      step.out = pick([&](int number) { return is_buffer(number) && number != step.x; });
    } else if (choice < 8) {
      step.act = Act::kProduct;
      step.x = pick(reads_matrix);
      step.y = pick(reads_matrix);
      step.out = pick([&](int number) {
        return is_buffer(number) && resource(number).device == device && number != step.x && number != step.y &&
               defined_[static_cast<size_t>(number)];
      });
    } else if (choice < 9) {
      step.act = Act::kFill;
      step.out = pick(is_buffer);
      step.x = step.y = step.out;
    } else {
      step.act = Act::kCopy;
      step.x = pick([&](int number) { return stays(number) && readable(planner, number); });
      step.y = step.x;
      step.out = pick([&](int number) {
        return stays(number) && number != step.x &&
               (is_buffer(number) || (step.x >= 0 && resource(step.x).kind != Kind::kPinned));
      });
    }
    const bool complete = step.x >= 0 && step.y >= 0 && step.out >= 0;
    if (step.act == Act::kFill) step.x = -1;
    if (step.act != Act::kCombine && step.act != Act::kProduct) step.y = -1;
    if (!complete) step.act = Act::kHostRead;
    return step;
  }

  void make_graph() {
    Graph graph;
    graph.stream = below(static_cast<int>(program_.streams.size()));
    const int device = program_.streams[static_cast<size_t>(graph.stream)];
    do {
      graph.fork = below(static_cast<int>(program_.streams.size()));
    } while (graph.fork == graph.stream || program_.streams[static_cast<size_t>(graph.fork)] != device);
    for (int& workspace : graph.workspace) workspace = add_resource(Kind::kWorkspace, device);
    small_.resize(program_.resources.size(), true);
    defined_.resize(program_.resources.size(), true);
    Planner planner(2, {device, device});
    // Of what a replay finds, nothing is known to be small.
    std::vector<bool> small(program_.resources.size(), false);
    const int count = 2 + below(5);
    while (std::ssize(graph.steps) < count) {
      Step step = device_step(planner, below(2), device, true, small);
      if (step.act == Act::kHostRead) continue;
      const Accesses accesses = accesses_of(step, {graph.workspace[0], graph.workspace[1]});
      for (int before = planner.missing(step, accesses); before >= 0; before = planner.missing(step, accesses)) {
        graph.steps[static_cast<size_t>(before)].awaited = true;
        planner.wait(step, {before});
        step.waits.push_back({before});
      }
      planner.add(step, accesses);
      small[static_cast<size_t>(step.out)] = stays_small(step, small);
      graph.steps.push_back(std::move(step));
    }
    program_.graphs.push_back(std::move(graph));
  }

  Step make_step(const Planner& planner) {
    for (;;) {
      Step step;
      const int choice = below(20);
      if (choice == 0) {
        step.act = Act::kReplace;
        step.out = pick([&](int number) { return resource(number).kind == Kind::kReplaceable; });
        if (step.out >= 0) return step;
      } else if (choice < 3) {
        step.act = Act::kHostWrite;
        step.out = pick([&](int number) { return resource(number).kind == Kind::kPinned; });
        step.factor = below(32);
        if (step.out >= 0) return step;
      } else if (choice < 5) {
        step.act = Act::kHostRead;
        step.x = pick([&](int number) { return resource(number).kind == Kind::kPinned; });
        if (step.x >= 0) return step;
      } else if (choice < 9 && !program_.graphs.empty()) {
        step.act = Act::kGraph;
        step.graph = below(static_cast<int>(program_.graphs.size()));
        const Graph& graph = program_.graphs[static_cast<size_t>(step.graph)];
        step.stream = graph.stream;
        const Accesses accesses = accesses_of(graph);
        if (std::all_of(accesses.read.begin(), accesses.read.end(),
                        [&](int number) { return planner.readers(number) < kMostReaders; })) {
          return step;
        }
      } else {
        const int stream = below(static_cast<int>(program_.streams.size()));
        step = device_step(planner, stream, program_.streams[static_cast<size_t>(stream)], false, small_);
        if (step.act != Act::kHostRead) return step;
      }
    }
  }

  bool stays_small(const Step& step, const std::vector<bool>& small) const {
    if (step.act == Act::kProduct) return false;
    return step.act != Act::kCopy || small[static_cast<size_t>(step.x)];
  }

  void note_values(const Step& step) {
    if (step.act == Act::kGraph) {
      for (const Step& inner : program_.graphs[static_cast<size_t>(step.graph)].steps) note_values(inner);
    } else if (step.out >= 0) {
      defined_[static_cast<size_t>(step.out)] = step.act != Act::kReplace;
      small_[static_cast<size_t>(step.out)] = stays_small(step, small_);
    }
  }

  std::mt19937 random_;
  HostProgram program_;
  std::vector<bool> small_;    // [resource] numbers below 32, fit for a product
  std::vector<bool> defined_;  // [resource] written since it was allocated
};

enum class Missing : uint8_t { kNothing, kBetweenStreams, kForTheHost };

/// Which order is missing without one of the waits. What the host then does too early no checker sees.
Missing missing_order(const HostProgram& program, const std::vector<Step>& steps, Planner planner, const Graph* graph,
                      const Omission& omission) {
  Missing missing = Missing::kNothing;
  for (int i = 0; i < std::ssize(steps); ++i) {
    const Step& step = steps[static_cast<size_t>(i)];
    for (int j = 0; j < std::ssize(step.waits); ++j) {
      if (i != omission.step || j != omission.wait) planner.wait(step, step.waits[static_cast<size_t>(j)]);
    }
    const Accesses accesses =
        graph == nullptr ? accesses_of(program, step) : accesses_of(step, {graph->workspace[0], graph->workspace[1]});
    if (planner.missing(step, accesses) >= 0) {
      if (step.stream < 0) return Missing::kForTheHost;
      missing = Missing::kBetweenStreams;
    }
    planner.add(step, accesses);
  }
  return missing;
}

}  // namespace

HostProgram random_host_program(uint32_t seed) {
  return Maker(seed).make();
}

std::vector<Omission> needed_waits(const HostProgram& program) {
  std::vector<Omission> needed;
  std::vector<bool> launched(program.graphs.size(), false);
  for (const Step& step : program.steps) {
    // What still runs when its memory is freed is another bug, and ends a program without a checker.
    if (step.act == Act::kReplace) return {};
    if (step.act == Act::kGraph) launched[static_cast<size_t>(step.graph)] = true;
  }
  const auto look = [&](const std::vector<Step>& steps, const Planner& planner, const Graph* graph, int number) {
    for (int i = 0; i < std::ssize(steps); ++i) {
      const Step& step = steps[static_cast<size_t>(i)];
      if (step.stream < 0) continue;
      for (int j = 0; j < std::ssize(step.waits); ++j) {
        const Omission omission{number, i, j};
        if (missing_order(program, steps, planner, graph, omission) == Missing::kBetweenStreams) {
          needed.push_back(omission);
        }
      }
    }
  };
  look(program.steps, Planner(static_cast<int>(program.streams.size()), program.streams), nullptr, -1);
  for (size_t i = 0; i < program.graphs.size(); ++i) {
    if (launched[i]) look(program.graphs[i].steps, Planner(2, {0, 0}), &program.graphs[i], static_cast<int>(i));
  }
  return needed;
}

}  // namespace shardscope::test
