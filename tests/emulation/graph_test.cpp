// Captured graphs: what they hold, in which order their nodes run, and what a replay does anew.
#include <catch2/catch.hpp>

#include <memory>
#include <vector>

#include "tests/emulation/orders.hpp"
#include "tests/emulation/planted_host/host_stand.hpp"

namespace shardscope::planted_host {
namespace {

using test::unread_reports;

constexpr uint64_t kLastSeed = 20;

/// body(stand) in every order, after which there must be neither an error nor a report nor anything left but memory.
template <class Body>
void under_orders(const Body& body, emulation::Options options = {}) {
  for (const uint64_t seed : test::seeds_to_try(kLastSeed)) {
    INFO("seed " << seed);
    options.seed = seed;
    emulation::restart(options);
    HostStand stand;
    body(stand);
    stand.finish();
    CHECK(unread_reports() == "");
    CHECK(stand.error() == cudaSuccess);
    CHECK(stand.refusal() == "");
  }
}

/// A graph of what body() enqueues in `stream`. Given back at the end.
class Captured {
 public:
  template <class Body>
  Captured(HostStand& stand, cudaStream_t stream, const Body& body) : stand_(stand) {
    stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    body();
    stand.note(cudaStreamEndCapture(stream, &graph_));
    stand.note(cudaGraphGetNodes(graph_, nullptr, &nodes_));
    stand.note(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    stand_.note(cudaGraphExecDestroy(executable_));
    stand_.note(cudaGraphDestroy(graph_));
  }

  void launch(cudaStream_t stream) { stand_.note(cudaGraphLaunch(executable_, stream)); }
  size_t nodes() const { return nodes_; }

 private:
  HostStand& stand_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  size_t nodes_ = 0;
};

}  // namespace

TEST_CASE("graph: capturing runs nothing, each replay runs everything on what memory holds then") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(1);
    float* const y = stand.filled(0);
    const cudaStream_t stream = stand.stream();
    Captured graph(stand, stream, [&] {
      stand.combine(x, 2, y, y, stream);  // y += 2 x
      stand.combine(x, 1, x, x, stream);  // x += x
    });
    CHECK(graph.nodes() == 2);
    CHECK(stand.holds(y, 0));
    for (int i = 0; i < 3; ++i) graph.launch(stream);
    CHECK(stand.holds(x, 8));
    CHECK(stand.holds(y, 2 + 4 + 8));
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("graph: branches that an event forks and joins run in any order, what follows the join sees both") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(3);
    float* const left = stand.filled(0);
    float* const right = stand.filled(0);
    float* const out = stand.filled(0);
    const cudaStream_t stream = stand.stream();
    const cudaStream_t side = stand.stream();
    Captured graph(stand, stream, [&] {
      stand.combine(x, 1, x, x, stream);  // 6
      stand.wait_for(side, stream);
      stand.combine(x, 1, x, left, stream);  // 12
      stand.combine(x, 2, x, right, side);   // 18
      stand.wait_for(stream, side);
      stand.combine(left, 1, right, out, stream);  // 30
    });
    CHECK(graph.nodes() == 4);
    graph.launch(stream);
    CHECK(stand.holds(out, 30));
    stand.note(cudaStreamDestroy(side));
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("graph: which of two branches comes first differs from seed to seed, and is the same for one seed") {
  const auto first_branch = [](uint64_t seed) {
    emulation::restart({.seed = seed});
    HostStand stand;
    uint32_t* const counter = stand.zeros<uint32_t>(1);
    float* const numbers = stand.filled(0);
    const cudaStream_t stream = stand.stream();
    const cudaStream_t side = stand.stream();
    Captured graph(stand, stream, [&] {
      stand.wait_for(side, stream);
      stand.note(take_number(counter, numbers, stream));
      stand.note(take_number(counter, numbers + 1, side));
      stand.wait_for(stream, side);
    });
    graph.launch(stream);
    const std::vector<float> order = stand.download(numbers, 2);
    CHECK(order[0] + order[1] == 1);
    CHECK(stand.error() == cudaSuccess);
    return order[0] == 0 ? 0 : 1;
  };
  int second = 0;
  for (uint64_t seed = 1; seed <= kLastSeed; ++seed) {
    const int first = first_branch(seed);
    CHECK(first_branch(seed) == first);
    second += first;
  }
  CHECK(second > 0);
  CHECK(second < static_cast<int>(kLastSeed));
}

TEST_CASE("graph: a launch follows the stream's work before it, and what follows it sees all of the graph") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(0);
    float* const y = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    const cudaStream_t other = stand.stream();
    Captured graph(stand, stream, [&] { stand.combine(x, 3, y, x, stream); });
    stand.combine(y, 2, y, x, other);  // x = 3
    stand.wait_for(other, other);
    graph.launch(other);               // x = 10
    stand.combine(x, 1, x, x, other);  // x = 20
    CHECK(stand.holds(x, 20));
    stand.note(cudaStreamDestroy(other));
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("graph: launches of one executable graph run one after another, in whatever streams") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    const cudaStream_t other = stand.stream();
    Captured graph(stand, stream, [&] { stand.combine(x, 1, x, x, stream); });
    for (int i = 0; i < 2; ++i) {
      graph.launch(stream);
      graph.launch(other);
    }
    CHECK(stand.holds(x, 16));
    stand.note(cudaStreamDestroy(other));
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("graph: copies from and to pinned memory see what it holds at each replay") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(0);
    float* const in = stand.pinned<float>(HostStand::kCount, 1);
    float* const out = stand.pinned<float>(HostStand::kCount, 0);
    const cudaStream_t stream = stand.stream();
    Captured graph(stand, stream, [&] {
      stand.note(cudaMemcpyAsync(x, in, HostStand::kBytes, cudaMemcpyHostToDevice, stream));
      stand.combine(x, 1, x, x, stream);
      stand.note(cudaMemcpyAsync(out, x, HostStand::kBytes, cudaMemcpyDeviceToHost, stream));
    });
    for (int turn = 1; turn <= 4; ++turn) {
      for (int64_t i = 0; i < HostStand::kCount; ++i) in[i] = static_cast<float>(turn);
      graph.launch(stream);
      stand.note(cudaStreamSynchronize(stream));
      CHECK(std::vector<float>(out, out + HostStand::kCount) ==
            std::vector<float>(HostStand::kCount, static_cast<float>(2 * turn)));
    }
    stand.note(cudaStreamDestroy(stream));
    stand.note(cudaFreeHost(in));
    stand.note(cudaFreeHost(out));
  });
}

TEST_CASE("graph: the executable graph outlives the graph, and what was launched outlives both") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    {
      Captured graph(stand, stream, [&] {
        for (int i = 0; i < 3; ++i) stand.combine(x, 1, x, x, stream);
      });
      graph.launch(stream);
    }
    stand.note(cudaStreamDestroy(stream));
    CHECK(stand.holds(x, 8));
  });
}

TEST_CASE("graph: a programmatic launch stays one in a graph, and its kernel's wait makes it right") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(1);
    float* const y = stand.filled(0);
    const cudaStream_t stream = stand.stream();
    Captured graph(stand, stream, [&] {
      stand.note(combine(x, 1, x, x, HostStand::kCount, stream));
      stand.note(combine(x, 1, x, y, HostStand::kCount, stream, true));
      stand.note(neighbours(y, x, HostStand::kCount, stream, true));
    });
    graph.launch(stream);
    CHECK(stand.holds(x, 8));
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("graph: an empty graph is one, and orders what is around it") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    Captured graph(stand, stream, [] {});
    CHECK(graph.nodes() == 0);
    stand.combine(x, 1, x, x, stream);
    graph.launch(stream);
    stand.combine(x, 1, x, x, stream);
    CHECK(stand.holds(x, 4));
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("graph: while one stream is captured another one works, and events before and after are told apart") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(1);
    float* const y = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    const cudaStream_t other = stand.stream();
    const cudaEvent_t event = stand.event();
    Captured graph(stand, stream, [&] {
      stand.note(cudaEventRecord(event, stream));  // captured: happens for nobody outside
      stand.combine(x, 1, x, x, stream);
      stand.combine(y, 2, y, y, other);
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      stand.note(cudaStreamIsCapturing(stream, &status));
      CHECK(status == cudaStreamCaptureStatusActive);
      stand.note(cudaStreamIsCapturing(other, &status));
      CHECK(status == cudaStreamCaptureStatusNone);
    });
    CHECK(stand.holds(y, 3));
    graph.launch(stream);
    stand.note(cudaEventRecord(event, stream));
    stand.note(cudaStreamWaitEvent(other, event, 0));
    stand.combine(x, 1, x, x, other);
    CHECK(stand.holds(x, 4));
    stand.note(cudaEventDestroy(event));
    stand.note(cudaStreamDestroy(other));
    stand.note(cudaStreamDestroy(stream));
  });
}

TEST_CASE("graph: with a relaxed capture the host may allocate and wait for others meanwhile") {
  under_orders([](HostStand& stand) {
    float* const x = stand.filled(1);
    const cudaStream_t stream = stand.stream();
    const cudaStream_t other = stand.stream();
    stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    float* const more = stand.unwritten<float>(HostStand::kCount);
    stand.combine(x, 1, x, more, stream);
    stand.combine(x, 2, x, x, other);
    stand.note(cudaStreamSynchronize(other));
    cudaGraph_t graph = nullptr;
    stand.note(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable = nullptr;
    stand.note(cudaGraphInstantiate(&executable, graph, 0));
    stand.note(cudaGraphLaunch(executable, stream));
    CHECK(stand.holds(more, 6));
    // What waits for the stream that is captured is not allowed even then.
    stand.note(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaDeviceSynchronize() == cudaErrorStreamCaptureUnsupported);
    cudaGraph_t none = nullptr;
    CHECK(cudaStreamEndCapture(stream, &none) == cudaErrorStreamCaptureInvalidated);
    CHECK(none == nullptr);
    CHECK(cudaGetLastError() == cudaErrorStreamCaptureInvalidated);
    CHECK(emulation::take_refusal() != "");
    stand.note(cudaGraphExecDestroy(executable));
    stand.note(cudaGraphDestroy(graph));
  });
}

TEST_CASE("graph: what it costs the host is counted: one call a replay, however many nodes") {
  emulation::restart({});
  HostStand stand;
  float* const x = stand.filled(1);
  const cudaStream_t stream = stand.stream();
  Captured graph(stand, stream, [&] {
    for (int i = 0; i < 10; ++i) stand.combine(x, 0, x, x, stream);
  });
  CHECK(graph.nodes() == 10);
  emulation::clear_calls();
  emulation::clear_counters();
  for (int i = 0; i < 7; ++i) graph.launch(stream);
  stand.note(cudaStreamSynchronize(stream));
  CHECK(emulation::calls() == std::map<std::string, int64_t>{{"cudaGraphLaunch", 7}, {"cudaStreamSynchronize", 1}});
  REQUIRE(emulation::counters().size() == 1);
  CHECK(emulation::counters()[0].launches == 70);
  stand.note(cudaStreamDestroy(stream));
}

}  // namespace shardscope::planted_host
