#include "launch/doctor_ranks.hpp"

#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <exception>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.hpp"
#include "launch/environment.hpp"
#include "launch/host_topology.hpp"
#include "parallel/cuda_library.hpp"
#include "topology/topology_json.hpp"

namespace shardscope::launch {
namespace {

using parallel::CommunicatorKind;
using parallel::World;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::vector<std::string> own_variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  return variables;
}

std::optional<int64_t> locked_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

/// Where a word of a rank's memory stands.
struct Word {
  uint64_t value = 0;
  int64_t process = 0;
  uint64_t address = 0;
};

/// errno of reading that word of another process; 0: it was read.
int read_of_other(const Word& word) {
  uint64_t value = 0;
  iovec here{.iov_base = &value, .iov_len = sizeof(value)};
  // The address is of the other process: nothing here is behind it.
  iovec there{.iov_base = reinterpret_cast<void*>(word.address), .iov_len = sizeof(value)};
  if (process_vm_readv(static_cast<pid_t>(word.process), &here, 1, &there, 1, 0) != sizeof(value)) return errno;
  return value == word.value ? 0 : ESRCH;  // another process of that number: of another namespace
}

/// Of the next rank on this host. mine: stands until all ranks have read.
std::optional<int> read_of_next(World& world, const uint64_t& mine) {
  if (world.size() == 1) return std::nullopt;
  const nlohmann::json place = {mine, static_cast<int64_t>(getpid()), reinterpret_cast<uint64_t>(&mine)};
  const std::vector<std::string> all = world.all_gather_text(place.dump(), "places of memory");
  for (int step = 1; step < world.size(); ++step) {
    const auto other = static_cast<size_t>((world.rank() + step) % world.size());
    if (world.hosts()[other] != world.host()) continue;
    const nlohmann::json theirs = nlohmann::json::parse(all[other]);
    return read_of_other({.value = theirs.at(0).get<uint64_t>(),
                          .process = theirs.at(1).get<int64_t>(),
                          .address = theirs.at(2).get<uint64_t>()});
  }
  return std::nullopt;
}

void add_devices(RankFacts& facts) {
  const parallel::CudaLibraryResult opened = parallel::cuda_library();
  if (opened.library == nullptr) {
    facts.why_no_device = opened.why_none;
    return;
  }
  const cuda::DeviceProbe probe = opened.library->probe(read_environment("CUDA_VISIBLE_DEVICES"));
  facts.driver_cuda = probe.driver_version;
  facts.build_cuda = probe.runtime_version;
  facts.why_no_device = probe.why_none;
  for (const cuda::DeviceFacts& device : probe.devices) {
    facts.devices.push_back({.ordinal = device.ordinal,
                             .name = device.name,
                             .uuid = device.uuid,
                             .pci_bus_id = lower(device.pci_bus_id),
                             .refusal = device.refusal});
  }
}

/// What `act` fails with; empty: it does not. Another rank's failure passes, and so does a bug of ours.
template <class Act>
std::string failure_of(const Act& act) {
  try {
    act();
    return "";
  } catch (const BugError&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

/// Why the ranks cannot use a way of summing on their devices; empty: they can, and its sums are right.
std::string why_not_used(Session& session, const Engine& engine, const Place& place, CommunicatorKind kind) {
  World& world = session.world;
  const parallel::CudaLibrary* library = parallel::cuda_library().library;
  require(library != nullptr, "devices without a library for them");
  std::unique_ptr<parallel::Communicator> host =
      make_communicator(world, {.group_size = world.size(),
                                .kind = CommunicatorKind::kMpi,
                                .oversubscribed = group_place(world, place, world.size()).oversubscribed});
  const std::unique_ptr<parallel::SumBench> bench =
      library->make_sum_bench(world, std::move(host), *engine.backend, std::array{kind}, /*shared_devices=*/false);
  for (const parallel::SumBench::Way& way : bench->ways()) {
    if (way.name == communicator_name(kind)) return way.why_not;
  }
  throw BugError("a way of summing that was asked for is not told of");
}

/// The timeout while it lives.
class ShorterTimeout {
 public:
  ShorterTimeout(World& world, std::chrono::milliseconds timeout) : world_(world), before_(world.timeout()) {
    world.set_timeout(timeout);
  }
  ShorterTimeout(const ShorterTimeout&) = delete;
  ShorterTimeout& operator=(const ShorterTimeout&) = delete;
  ~ShorterTimeout() { world_.set_timeout(before_); }

 private:
  World& world_;
  std::chrono::milliseconds before_;
};

/// What a proof has shown on any rank; empty: that all is well. Where one rank fails alone, the others wait for it
/// inside the proof: half of the timeout, so that it, which waits for them here, is still there to say why. Of several
/// failures the earliest is the cause: who gives up waiting does so later. proof: returns what it has shown.
/// Collective.
template <class Proof>
std::string shown_by(World& world, const char* what, const Proof& proof) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::string own;
  std::exception_ptr error;
  try {
    const ShorterTimeout shorter(world, world.timeout() / 2);
    own = proof();
  } catch (const BugError&) {
    throw;
  } catch (const Error& failed) {
    own = world.size() == 1 ? failed.what() : fmt::format("rank {}: {}", world.rank(), failed.what());
    error = std::current_exception();
  }
  const auto taken_us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  std::vector<std::string> all;
  try {
    all = world.all_gather_text(nlohmann::json({taken_us, own}).dump(), what);
  } catch (const Error&) {
    if (error) std::rethrow_exception(error);  // nobody else can say what happened
    throw;
  }
  std::pair<int64_t, std::string> earliest;
  for (const std::string& text : all) {
    auto theirs = nlohmann::json::parse(text).get<std::pair<int64_t, std::string>>();
    if (theirs.second.empty()) continue;
    if (earliest.second.empty() || theirs.first < earliest.first) earliest = std::move(theirs);
  }
  return earliest.second;
}

}  // namespace

std::vector<RankFacts> gather_ranks(Session& session, const Place& place, BackendKind backend) {
  World& world = session.world;
  world.progress("looking at itself");
  // A word that no other process has at its place.
  const uint64_t mine = 0x5ca1ab1e00000000U + static_cast<uint64_t>(getpid());
  RankFacts facts{.rank = world.rank(),
                  .host_rank = world.host_rank(),
                  .host = world.host(),
                  .launcher_cores = place.host.launcher_cores,
                  .cores = place.cores,
                  .threads = place.threads,
                  .locked_bytes = locked_limit(),
                  .seccomp = seccomp_mode(""),
                  .variables = reported_variables(own_variables()),
                  .copy_errno = read_of_next(world, mine),
                  .devices = {},
                  .why_no_device = {}};
  if (backend == BackendKind::kCpu) {
    facts.why_no_device = "--backend cpu";
  } else {
    add_devices(facts);
  }
  std::vector<RankFacts> all;
  for (const std::string& text : world.all_gather_text(text_of(facts), "facts of ranks")) {
    all.push_back(rank_facts_of(text));
  }
  return all;
}

ChosenDevices choose_devices(Session& session, BackendKind backend) {
  ChosenDevices chosen;
  // The same on all ranks: all calculate it from the same facts.
  chosen.use.why_not = failure_of([&] {
    if (backend != BackendKind::kCpu) {
      chosen.choice = choose_backend(BackendRequest{.kind = BackendKind::kAuto}, session);
    }
  });
  chosen.use.tried = chosen.choice.on_devices || !chosen.use.why_not.empty();
  if (!chosen.choice.on_devices) return chosen;
  for (const cuda::DeviceFacts& facts : chosen.choice.facts) {
    chosen.use.ranks.push_back({.pci_bus_id = lower(facts.pci_bus_id), .error = {}});
  }
  return chosen;
}

Place take_place_near(Session& session, const BackendChoice& choice, const std::optional<HostFacts>& host) {
  const std::vector<std::string> all = session.world.all_gather_text(
      host ? topology::topology_json(host->gpus.topology).dump() : std::string(), "topologies");
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty() || session.world.hosts()[rank] != session.world.host()) continue;
    return take_place(session, std::nullopt, choice,
                      topology::topology_of_json(nlohmann::json::parse(all[rank]), session.world.host()));
  }
  throw BugError("a host without a first rank");
}

Engine make_any_engine(Session& session, const Place& place, ChosenDevices& chosen) {
  parallel::World& world = session.world;
  const BackendChoice& choice = chosen.choice;
  Engine engine;
  bool usable = choice.on_devices;
  const auto gather = [&](const std::string& own, const char* what) {
    const std::vector<std::string> all = world.all_gather_text(own, what);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (chosen.use.ranks[rank].error.empty()) chosen.use.ranks[rank].error = all[rank];
      usable = usable && all[rank].empty();
    }
  };
  if (usable) {
    world.progress("taking a device");
    gather(failure_of([&] { parallel::cuda_library().library->memory(choice.device); }), "devices taken");
  }
  if (usable) {
    gather(failure_of([&] { engine = make_engine(EngineRequest{.quiet = true}, choice, place, session); }),
           "backends made");
  }
  if (!usable) engine = make_engine(EngineRequest{.quiet = true}, BackendChoice{}, place, session);
  return engine;
}

PeerProof prove_peers(Session& session, const Engine& engine, const Place& place) {
  constexpr int kMostPeers = 8;
  World& world = session.world;
  PeerProof proof{.ranks = world.size()};
  if (const auto found = engine.versions.find("NCCL"); found != engine.versions.end()) {
    proof.nccl_version = found->second;
  }
  if (!engine.on_devices()) {
    proof.why_not_tried = "there are no ranks with devices";
    return proof;
  }
  if (world.size() == 1) {
    proof.why_not_tried = "that takes 2 ranks";
    return proof;
  }
  proof.nccl_tried = true;
  if (!world.one_host() || world.size() > kMostPeers) {
    proof.why_not_tried = "that takes at most 8 ranks on one host";
  } else {
    proof.tried = true;
    world.progress("proving peer access");
    proof.failure = shown_by(world, "proofs of peer access",
                             [&] { return why_not_used(session, engine, place, CommunicatorKind::kOneShot); });
  }
  world.progress("proving NCCL's sums");
  proof.nccl_failure = shown_by(world, "proofs of NCCL's sums",
                                [&] { return why_not_used(session, engine, place, CommunicatorKind::kNccl); });
  return proof;
}

}  // namespace shardscope::launch
