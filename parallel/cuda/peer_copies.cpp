// A copy is enqueued on a stream of the device that sends. Its time is that between two events around `copies` of them,
// divided; what arrives is compared with what was sent, by its first and last bytes: every device sends a byte of its
// own, and what is received is cleared before.
#include "parallel/cuda/peer_copies.hpp"

#include <array>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/device_probe.hpp"
#include "kernels/cuda/owners.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTinyBytes = 16;
constexpr int kTinyCopies = 64;
constexpr int64_t kLookedAtBytes = 256;  // at each end
constexpr double kMilliToMicro = 1e3;
constexpr std::chrono::seconds kLongest{60};

/// What a device sends from, receives into, and times by.
struct Post {
  int ordinal = 0;
  cuda::DeviceBuffer sent, received;
  cuda::Stream stream;
  cuda::Event begin, end;
};

/// One flow: from one post to another.
struct Flow {
  int from = 0, to = 0;
};

class Copies {
 public:
  Copies(const PeerCopiesWanted& wanted, PeerCopies& result) : wanted_(wanted), result_(result) {
    for (const cuda::DeviceFacts& device : result.devices) posts_.push_back(make_post(device.ordinal));
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() {
    while (!posts_.empty()) {
      static_cast<void>(cudaSetDevice(posts_.back().ordinal));  // owners belong to the device that is current
      posts_.pop_back();
    }
  }

  void measure_pairs(bool peer_access) {
    tell(peer_access ? "copies by peer access" : "copies through host memory");
    for_pairs([&](int from, int to) {
      if (peer_access && !can(from, to)) return;
      measure({{from, to}}, {.peer_access = peer_access}, wanted_.bytes, wanted_.copies);
    });
    if (!peer_access) return;
    tell("copies both ways");
    for_pairs([&](int from, int to) {
      if (from > to || !can(from, to) || !can(to, from)) return;
      measure({{from, to}, {to, from}}, {.peer_access = true, .both_ways = true}, wanted_.bytes, wanted_.copies);
    });
  }

  void measure_tiny(bool peer_access) {
    tell(peer_access ? "tiny copies by peer access" : "tiny copies through host memory");
    for_pairs([&](int from, int to) {
      if (peer_access && !can(from, to)) return;
      measure({{from, to}}, {.peer_access = peer_access}, kTinyBytes, kTinyCopies);
    });
  }

  /// Each device sends to the one `distance` further.
  void measure_together() {
    const int devices = static_cast<int>(posts_.size());
    if (devices < 3) return;  // of two, that is both ways
    tell("copies by all devices at once");
    for (int distance = 1; distance < devices; ++distance) {
      std::vector<Flow> flows;
      for (int from = 0; from < devices; ++from) flows.push_back({from, (from + distance) % devices});
      measure(flows, {.peer_access = true, .together = true}, wanted_.bytes, wanted_.copies);
    }
  }

  void enable_peer_access() {
    for_pairs([&](int from, int to) {
      if (!can(from, to)) return;
      use(from);
      const cudaError_t error = cudaDeviceEnablePeerAccess(ordinal(to), 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) {
        static_cast<void>(cudaGetLastError());
        return;
      }
      check(error, "cudaDeviceEnablePeerAccess", from);
    });
  }

 private:
  struct Kind {
    bool peer_access = false;
    bool both_ways = false;
    bool together = false;
  };

  Post make_post(int ordinal) const {
    const cuda::CallContext where{.detail = "copies between devices", .device = ordinal};
    cuda::check_cuda(cudaSetDevice(ordinal), "cudaSetDevice", where);
    Post post{.ordinal = ordinal,
              .sent = cuda::DeviceBuffer(wanted_.bytes, "copies to other devices", where),
              .received = cuda::DeviceBuffer(wanted_.bytes, "copies from other devices", where),
              .stream = cuda::make_stream(where),
              .begin = cuda::make_timing_event(where),
              .end = cuda::make_timing_event(where)};
    const auto bytes = static_cast<size_t>(wanted_.bytes);
    cuda::check_cuda(cudaMemsetAsync(post.sent.data(), mark_of(ordinal), bytes, post.stream.get()), "cudaMemsetAsync",
                     where);
    cuda::check_cuda(cudaStreamSynchronize(post.stream.get()), "cudaStreamSynchronize", where);
    return post;
  }

  static int mark_of(int ordinal) { return 0x11 + ordinal; }
  int ordinal(int position) const { return posts_[static_cast<size_t>(position)].ordinal; }
  bool can(int from, int to) const { return result_.can[static_cast<size_t>(from)][static_cast<size_t>(to)]; }
  const Post& post(int position) const { return posts_[static_cast<size_t>(position)]; }

  void tell(const char* doing) const {
    if (wanted_.tell) wanted_.tell(doing);
  }
  void check(cudaError_t error, std::string_view operation, int position) const {
    cuda::check_cuda(error, operation, {.detail = "copies between devices", .device = ordinal(position)});
  }
  void use(int position) const { check(cudaSetDevice(ordinal(position)), "cudaSetDevice", position); }

  template <class Visit>
  void for_pairs(const Visit& visit) const {
    const int devices = static_cast<int>(posts_.size());
    for (int from = 0; from < devices; ++from) {
      for (int to = 0; to < devices; ++to) {
        if (from != to) visit(from, to);
      }
    }
  }

  /// Times the flows, that begin together as well as the host can.
  void measure(const std::vector<Flow>& flows, Kind kind, int64_t bytes, int copies) {
    for (const Flow& flow : flows) clear(flow.to);
    for (const Flow& flow : flows) enqueue(flow, bytes, 1);  // what happens at a first copy is not timed
    for (const Flow& flow : flows) finish(flow);
    for (const Flow& flow : flows) {
      use(flow.from);
      check(cudaEventRecord(post(flow.from).begin.get(), post(flow.from).stream.get()), "cudaEventRecord", flow.from);
      enqueue(flow, bytes, copies);
      check(cudaEventRecord(post(flow.from).end.get(), post(flow.from).stream.get()), "cudaEventRecord", flow.from);
    }
    for (const Flow& flow : flows) finish(flow);
    for (const Flow& flow : flows) {
      float milliseconds = 0;
      use(flow.from);
      check(cudaEventElapsedTime(&milliseconds, post(flow.from).begin.get(), post(flow.from).end.get()),
            "cudaEventElapsedTime", flow.from);
      result_.figures.push_back({.from = flow.from,
                                 .to = flow.to,
                                 .peer_access = kind.peer_access && can(flow.from, flow.to),
                                 .both_ways = kind.both_ways,
                                 .together = kind.together,
                                 .bytes = bytes,
                                 .us = static_cast<double>(milliseconds) * kMilliToMicro / copies,
                                 .right = arrived(flow, bytes)});
    }
  }

  void clear(int position) const {
    use(position);
    check(cudaMemsetAsync(post(position).received.data(), 0, static_cast<size_t>(wanted_.bytes),
                          post(position).stream.get()),
          "cudaMemsetAsync", position);
    check(cudaStreamSynchronize(post(position).stream.get()), "cudaStreamSynchronize", position);
  }

  void enqueue(const Flow& flow, int64_t bytes, int copies) const {
    use(flow.from);
    for (int copy = 0; copy < copies; ++copy) {
      check(cudaMemcpyPeerAsync(post(flow.to).received.data(), ordinal(flow.to), post(flow.from).sent.data(),
                                ordinal(flow.from), static_cast<size_t>(bytes), post(flow.from).stream.get()),
            "cudaMemcpyPeerAsync", flow.from);
    }
  }

  /// Waits for what the sender's stream holds, but not for ever.
  void finish(const Flow& flow) const {
    const Clock::time_point last = Clock::now() + kLongest;
    use(flow.from);
    while (true) {
      const cudaError_t state = cudaStreamQuery(post(flow.from).stream.get());
      if (state != cudaErrorNotReady) {
        check(state, "cudaStreamQuery", flow.from);
        return;
      }
      static_cast<void>(cudaGetLastError());   // "not ready" is kept until asked for
      const bool late = Clock::now() >= last;  // asked before the look, which may take long
      if (wanted_.look) wanted_.look();
      if (late) {
        throw SystemError(
            fmt::format("a copy from device {} to device {} does not end", ordinal(flow.from), ordinal(flow.to)),
            fmt::format("{} and {}", result_.devices[static_cast<size_t>(flow.from)].pci_bus_id,
                        result_.devices[static_cast<size_t>(flow.to)].pci_bus_id),
            "look at ACS and IOMMU settings (shardscope doctor), and at the kernel's log for Xid errors");
      }
      std::this_thread::yield();
    }
  }

  bool arrived(const Flow& flow, int64_t bytes) const {
    const int64_t looked_at = std::min(bytes, kLookedAtBytes);
    std::array<unsigned char, kLookedAtBytes> found{};
    use(flow.to);
    for (const int64_t begin : {int64_t{0}, bytes - looked_at}) {
      check(cudaMemcpy(found.data(), post(flow.to).received.as<std::byte>() + begin, static_cast<size_t>(looked_at),
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy", flow.to);
      for (int64_t i = 0; i < looked_at; ++i) {
        if (found[static_cast<size_t>(i)] != mark_of(ordinal(flow.from))) return false;
      }
    }
    return true;
  }

  const PeerCopiesWanted& wanted_;
  PeerCopies& result_;
  std::vector<Post> posts_;
};

}  // namespace

PeerCopies measure_peer_copies(const std::optional<std::string>& visible_devices, const PeerCopiesWanted& wanted) {
  PeerCopies result;
  for (const cuda::DeviceFacts& device : cuda::probe_devices(visible_devices).devices) {
    if (device.refusal.empty()) result.devices.push_back(device);
  }
  const size_t devices = result.devices.size();
  result.can.assign(devices, std::vector<bool>(devices));
  if (devices < 2) return result;
  for (size_t from = 0; from < devices; ++from) {
    for (size_t to = 0; to < devices; ++to) {
      if (from == to) continue;
      int can = 0;
      cuda::check_cuda(cudaDeviceCanAccessPeer(&can, result.devices[from].ordinal, result.devices[to].ordinal),
                       "cudaDeviceCanAccessPeer", {.device = result.devices[from].ordinal});
      result.can[from][to] = can != 0;
    }
  }
  Copies copies(wanted, result);
  copies.measure_pairs(/*peer_access=*/false);
  copies.measure_tiny(/*peer_access=*/false);
  copies.enable_peer_access();
  copies.measure_pairs(/*peer_access=*/true);
  copies.measure_tiny(/*peer_access=*/true);
  copies.measure_together();
  return result;
}

}  // namespace shardscope::parallel
