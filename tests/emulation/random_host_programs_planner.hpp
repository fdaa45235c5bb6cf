// What has to wait for what in a program of streams and a host: each step has a clock of what has happened before it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/emulation/random_host_programs.hpp"

namespace shardscope::test {

struct Accesses {
  std::vector<int> read;
  std::vector<int> written;
};

/// How many steps of each stream are known to have happened.
using Clock = std::vector<int>;

inline void join(Clock& clock, const Clock& other) {
  for (size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

/// Goes through steps in their order, and knows for each what has happened before it.
class Planner {
 public:
  Planner(int streams, std::vector<int> device_of_stream)
      : device_of_stream_(std::move(device_of_stream)),
        host_(static_cast<size_t>(streams), 0),
        streams_(static_cast<size_t>(streams), host_) {}

  /// Steps that have to have happened before one with these accesses and that its place is not known to follow, the
  /// latest first.
  int missing(const Step& step, const Accesses& accesses) const {
    Clock clock = host_;
    if (step.stream >= 0) join(clock, streams_[static_cast<size_t>(step.stream)]);
    int latest = -1;
    const auto look = [&](int before) {
      if (before < 0) return;
      const Done& done = done_[static_cast<size_t>(before)];
      if (done.stream < 0 || clock[static_cast<size_t>(done.stream)] >= done.place) return;
      latest = std::max(latest, before);
    };
    for (const int resource : accesses.read) look(last(resource).writer);
    for (const int resource : accesses.written) {
      look(last(resource).writer);
      for (const int reader : last(resource).readers) look(reader);
    }
    return latest;
  }

  void wait(const Step& step, const Wait& wait) {
    const Done& done = done_[static_cast<size_t>(wait.step)];
    if (step.stream >= 0) {
      join(streams_[static_cast<size_t>(step.stream)], done.clock);
      return;
    }
    const auto learn = [&](size_t stream) { join(host_, streams_[stream]); };
    const auto stream = static_cast<size_t>(done.stream);
    switch (wait.how) {
      case HostWait::kEventSynchronize:
      case HostWait::kEventQuery:
        join(host_, done.clock);
        break;
      case HostWait::kStreamSynchronize:
      case HostWait::kStreamQuery:
        learn(stream);
        break;
      case HostWait::kDeviceSynchronize:
        for (size_t other = 0; other < streams_.size(); ++other) {
          if (device_of_stream_[other] == device_of_stream_[stream]) learn(other);
        }
        break;
    }
  }

  void add(const Step& step, const Accesses& accesses) {
    const int number = static_cast<int>(done_.size());
    Done done;
    done.stream = step.stream;
    if (step.stream >= 0) {
      Clock& clock = streams_[static_cast<size_t>(step.stream)];
      join(clock, host_);
      done.place = ++clock[static_cast<size_t>(step.stream)];
      done.clock = clock;
    }
    done_.push_back(done);
    for (const int resource : accesses.read) last(resource).readers.push_back(number);
    for (const int resource : accesses.written) last(resource) = {number, {}};
  }

  size_t readers(int resource) const { return last(resource).readers.size(); }

 private:
  struct Done {
    int stream = -1;
    int place = 0;  // in its stream, from 1
    Clock clock;
  };
  struct Last {
    int writer = -1;
    std::vector<int> readers;  // since
  };

  const Last& last(int resource) const {
    static const Last kNever;
    const auto index = static_cast<size_t>(resource);
    return index < last_.size() ? last_[index] : kNever;
  }
  Last& last(int resource) {
    const auto index = static_cast<size_t>(resource);
    if (index >= last_.size()) last_.resize(index + 1);
    return last_[index];
  }

  std::vector<int> device_of_stream_;
  Clock host_;
  std::vector<Clock> streams_;
  std::vector<Done> done_;
  std::vector<Last> last_;
};

inline Accesses accesses_of(const Step& step, const std::vector<int>& workspaces) {
  Accesses accesses;
  for (const int resource : {step.x, step.y}) {
    if (resource < 0) continue;
    if (std::find(accesses.read.begin(), accesses.read.end(), resource) == accesses.read.end()) {
      accesses.read.push_back(resource);
    }
  }
  if (step.out >= 0) accesses.written.push_back(step.out);
  if (step.act == Act::kProduct) accesses.written.push_back(workspaces[static_cast<size_t>(step.stream)]);
  return accesses;
}

/// Of a graph: what it reads before it writes it may as well count as written.
inline Accesses accesses_of(const Graph& graph) {
  Accesses all;
  std::vector<int> read;
  const auto add = [](std::vector<int>& to, int resource) {
    if (std::find(to.begin(), to.end(), resource) == to.end()) to.push_back(resource);
  };
  for (const Step& step : graph.steps) {
    const Accesses accesses = accesses_of(step, {graph.workspace[0], graph.workspace[1]});
    for (const int resource : accesses.written) add(all.written, resource);
    for (const int resource : accesses.read) add(read, resource);
  }
  for (const int resource : read) {
    if (std::find(all.written.begin(), all.written.end(), resource) == all.written.end()) all.read.push_back(resource);
  }
  return all;
}

inline Accesses accesses_of(const HostProgram& program, const Step& step) {
  return step.act == Act::kGraph ? accesses_of(program.graphs[static_cast<size_t>(step.graph)])
                                 : accesses_of(step, program.workspaces);
}

}  // namespace shardscope::test
