// ncclGetUniqueId, the initialisations, and what a communicator says of itself.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <utility>

#include "tests/emulation/fakes/nccl/communicator.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation::nccl {
namespace {

const NcclOptions& options() {
  return Machine::get().options().nccl;
}

/// Waits for the ranks that have not come.
class Join final : public Task {
 public:
  Join(std::shared_ptr<Communicator> its_communicator, ncclComm_t* variable)
      : Task(std::move(its_communicator)), variable_(variable), begin_(Clock::now()) {
    // One thread cannot come to the second call while it waits in the first.
    const bool waits_alone = communicator().blocking && open_group() == nullptr;
    if (waits_alone && Machine::get().devices() > 1) {
      advice_ =
          "; if this thread was to call it for them too, what to do: calls for several ranks from one thread stand "
          "between ncclGroupStart and ncclGroupEnd";
    }
  }

 private:
  using Milliseconds = std::chrono::milliseconds;

  void leave() override {
    communicator().own_place().presence = Presence::kAborted;
    forget();
  }

  bool step() override {
    const Clique& clique = communicator().clique;
    if (const Verdict failure = clique.shared().failure.told(); !failure.good()) return give_up(failure);
    std::string missing;
    int dead = -1;
    for (int rank = 0; rank < communicator().ranks; ++rank) {
      const Place& place = clique.place(rank);
      switch (place.presence) {
        case Presence::kAbsent:
        case Presence::kComing:
          missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
          break;
        case Presence::kAborted:
          return give_up({ncclRemoteError, fmt::format("{} has aborted the communicator", communicator().other(rank))});
        case Presence::kThere:
          if (place.pid != getpid() && process_has_ended(place.pid)) dead = rank;
          break;
        case Presence::kLeft:  // it was quick
          break;
      }
    }
    const auto waited = std::chrono::duration_cast<Milliseconds>(Clock::now() - begin_);
    if (!missing.empty()) {
      if (dead >= 0 && options().tells_of_dead_ranks) {
        return give_up({ncclRemoteError, fmt::format("{} has died", communicator().other(dead))});
      }
      if (waited.count() < options().milliseconds_to_arrive) return false;
      return give_up(
          {ncclSystemError, fmt::format("after {} ms these of {} ranks have not called ncclCommInitRank: {}{}",
                                        waited.count(), communicator().ranks, missing, advice_)});
    }
    if (const Verdict verdict = same_gpu_twice(); !verdict.good()) return give_up(verdict);
    if (!communicator().blocking && waited.count() < options().milliseconds_to_initialise) return false;
    communicator().ready = true;
    return end({});
  }

  Verdict same_gpu_twice() const {
    if (options().several_ranks_per_gpu) return {};
    const Clique& clique = communicator().clique;
    for (int rank = 1; rank < communicator().ranks; ++rank) {
      for (int before = 0; before < rank; ++before) {
        if (clique.place(rank).gpu != clique.place(before).gpu) continue;
        return {ncclInvalidUsage,
                fmt::format("Duplicate GPU detected : {} and {} both on GPU {}", communicator().other(before),
                            communicator().other(rank), clique.place(rank).gpu.load())};
      }
    }
    return {};
  }

  bool give_up(const Verdict& why) {
    communicator().clique.shared().failure.tell(why);
    const bool stays = !communicator().blocking;  // for ncclCommGetAsyncError to tell, and ncclCommAbort
    end(why);
    if (!stays) forget();
    return true;
  }

  /// The communicator is no more after it.
  void forget() {
    *variable_ = nullptr;
    library().communicators.erase(communicator().handle);
  }

  ncclComm_t* variable_;  // the caller's; not to be touched once the call has returned
  Clock::time_point begin_;
  std::string advice_;
};

/// Takes the rank's place.
Verdict take_place(Communicator& communicator) {
  const Clique& clique = communicator.clique;
  const auto tell = [&](Verdict why) {
    clique.shared().failure.tell(why);  // whoever is there already waits for a rank that cannot come
    return why;
  };
  RankCount said;  // by whoever came first
  const RankCount count{.ranks = static_cast<int16_t>(communicator.ranks),
                        .rank = static_cast<int16_t>(communicator.rank),
                        .pid = getpid()};
  if (!clique.shared().count.compare_exchange_strong(said, count) && said.ranks != count.ranks) {
    return tell({ncclInvalidArgument,
                 fmt::format("rank {} (pid {}) says that there are {} ranks, rank {} (pid {}) said {} ranks",
                             count.rank, count.pid, count.ranks, said.rank, said.pid, said.ranks)});
  }
  const int ranks = communicator.ranks;
  Place& place = communicator.own_place();
  Presence presence = Presence::kAbsent;
  if (!place.presence.compare_exchange_strong(presence, Presence::kComing)) {
    int there = 0;
    for (int rank = 0; rank < ranks; ++rank) there += clique.place(rank).presence >= Presence::kThere ? 1 : 0;
    if (there == ranks) {
      return {ncclInvalidUsage,
              fmt::format("the unique id was used before, for a communicator of {} ranks: each needs its own", ranks)};
    }
    const int first = place.pid;  // 0: it comes just now
    return tell({ncclInvalidUsage, fmt::format("rank {} comes twice{}", communicator.rank,
                                               first == 0 ? "" : fmt::format(", first from pid {}", first))});
  }
  place.pid = getpid();
  place.gpu = gpu_of_device(communicator.device);
  place.presence = Presence::kThere;
  return {};
}

struct Wanted {
  int ranks = 0;
  int rank = 0;
  int device = 0;
  bool blocking = true;
};

/// The task of a new communicator, whose handle `variable` then has.
Verdict join(ncclComm_t* variable, const ncclUniqueId& id, const Wanted& wanted, std::shared_ptr<Task>& task) {
  if (variable == nullptr) return {ncclInvalidArgument, "no place for the communicator was given"};
  *variable = nullptr;
  if (wanted.ranks < 1 || wanted.ranks > kMostRanks) {
    return {ncclInvalidArgument, fmt::format("{} ranks: 1 to {} are possible here", wanted.ranks, kMostRanks)};
  }
  if (wanted.rank < 0 || wanted.rank >= wanted.ranks) {
    return {ncclInvalidArgument, fmt::format("rank {} is not below {}", wanted.rank, wanted.ranks)};
  }
  Group* const group = open_group();
  if (group != nullptr && !group->works.empty()) {
    return {ncclInvalidUsage, "initialisations and collectives in one group"};
  }
  if (Verdict verdict = check_group(wanted.blocking); !verdict.good()) return verdict;
  auto communicator = std::make_shared<Communicator>();
  communicator->rank = wanted.rank;
  communicator->ranks = wanted.ranks;
  communicator->device = wanted.device;
  communicator->blocking = wanted.blocking;
  if (Verdict verdict = Clique::open(id, communicator->clique); !verdict.good()) return verdict;
  if (Verdict verdict = take_place(*communicator); !verdict.good()) return verdict;
  communicator->handle = static_cast<ncclComm_t>(library().new_handle());
  communicator->held = std::make_unique<Held>(fmt::format("NCCL communicator, {}", communicator->description()));
  *variable = communicator->handle;
  library().communicators.emplace(communicator->handle, communicator);
  task = std::make_shared<Join>(communicator, variable);
  return {};
}

Verdict check_config(const ncclConfig_t& config) {
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  if (config.size != initial.size || config.magic != initial.magic || config.version != initial.version) {
    return {ncclInvalidArgument, "the configuration was not made with this nccl.h's NCCL_CONFIG_INITIALIZER"};
  }
  const auto within = [](int value, int least, int most) {
    return value == NCCL_CONFIG_UNDEF_INT || (value >= least && value <= most);
  };
  const auto refuse = [](const char* member, int value) {
    return Verdict{ncclInvalidArgument, fmt::format("the configuration's {} is {}", member, value)};
  };
  if (!within(config.blocking, 0, 1)) return refuse("blocking", config.blocking);
  if (!within(config.cgaClusterSize, 0, 8)) return refuse("cgaClusterSize", config.cgaClusterSize);
  if (!within(config.minCTAs, 1, INT_MAX)) return refuse("minCTAs", config.minCTAs);
  if (!within(config.maxCTAs, 1, INT_MAX)) return refuse("maxCTAs", config.maxCTAs);
  const bool both = config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (both && config.minCTAs > config.maxCTAs) return refuse("minCTAs, above maxCTAs,", config.minCTAs);
  if (!within(config.splitShare, 0, 1)) return refuse("splitShare", config.splitShare);
  if (!within(config.shrinkShare, 0, 1)) return refuse("shrinkShare", config.shrinkShare);
  if (!within(config.collnetEnable, 0, 1)) return refuse("collnetEnable", config.collnetEnable);
  return {};
}

Verdict init_rank(const Call& call, ncclComm_t* variable, const ncclUniqueId& id, const Wanted& wanted) {
  std::shared_ptr<Task> task;
  Verdict verdict = join(variable, id, wanted, task);
  if (verdict.good()) verdict = run_task(call, std::move(task));
  if (Group* const group = open_group(); group != nullptr && group->first_error.good()) group->first_error = verdict;
  return verdict;
}

Verdict init_all(const Call& call, ncclComm_t* variables, int count, const int* devices) {
  const int there = Machine::get().devices();
  if (variables == nullptr) return {ncclInvalidArgument, "no place for the communicators was given"};
  if (open_group() != nullptr) return {ncclInvalidUsage, "ncclCommInitAll within a group"};
  if (count < 1 || (devices == nullptr && count > there)) {
    return {ncclInvalidArgument, fmt::format("{} communicators for {} devices", count, there)};
  }
  std::set<int> seen;
  for (int rank = 0; rank < count; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    if (device < 0 || device >= there) return {ncclInvalidArgument, fmt::format("there is no device {}", device)};
    if (!seen.insert(device).second && !options().several_ranks_per_gpu) {
      return {ncclInvalidUsage, fmt::format("Duplicate GPU detected : device {} is in the list twice", device)};
    }
  }
  ncclUniqueId id;
  Clique clique;  // each communicator then has it, too
  if (Verdict verdict = Clique::make(id, clique); !verdict.good()) return verdict;
  std::vector<std::shared_ptr<Task>> tasks(static_cast<size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    const Wanted wanted{.ranks = count, .rank = rank, .device = devices == nullptr ? rank : devices[rank]};
    Verdict verdict = join(&variables[rank], id, wanted, tasks[static_cast<size_t>(rank)]);
    if (verdict.good()) continue;
    for (int before = 0; before < rank; ++before) tasks[static_cast<size_t>(before)]->drop();
    return verdict;
  }
  return run_tasks(call, tasks);
}

}  // namespace
}  // namespace shardscope::emulation::nccl

using namespace shardscope::emulation;        // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::nccl;  // NOLINT(google-build-using-namespace)

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const Call call("ncclGetVersion");
  if (call.fails()) return ordered_answer(call);
  if (version == nullptr) return answer(call, {ncclInvalidArgument, "no place for the version was given"});
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Call call("ncclGetUniqueId");
  if (call.fails()) return ordered_answer(call);
  if (id == nullptr) return answer(call, {ncclInvalidArgument, "no place for the id was given"});
  std::vector<Clique>& ids = library().ids;
  ids.erase(std::remove_if(ids.begin(), ids.end(), [](const Clique& clique) { return clique.is_over(); }), ids.end());
  Clique clique;
  const Verdict verdict = Clique::make(*id, clique);
  if (verdict.good()) ids.push_back(std::move(clique));
  return answer(call, verdict);
}

ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank) {
  const Call call("ncclCommInitRank");
  if (call.fails()) return ordered_answer(call);
  return answer(call, init_rank(call, communicator, id, {.ranks = ranks, .rank = rank, .device = current_device()}));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Call call("ncclCommInitRankConfig");
  if (call.fails()) return ordered_answer(call);
  Wanted wanted{.ranks = ranks, .rank = rank, .device = current_device()};
  if (config != nullptr) {
    if (const Verdict verdict = check_config(*config); !verdict.good()) return answer(call, verdict);
    wanted.blocking = config->blocking != 0;
  }
  return answer(call, init_rank(call, communicator, id, wanted));
}

ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int count, const int* devices) {
  const Call call("ncclCommInitAll");
  if (call.fails()) return ordered_answer(call);
  return answer(call, init_all(call, communicators, count, devices));
}

ncclResult_t ncclCommCount(const ncclComm_t communicator, int* count) {
  const Call call("ncclCommCount");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  if (const Verdict verdict = find_ready(communicator, it); !verdict.good()) return answer(call, verdict, it.get());
  if (count == nullptr) return answer(call, {ncclInvalidArgument, "no place for the count was given"});
  *count = it->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int* device) {
  const Call call("ncclCommCuDevice");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  if (const Verdict verdict = find_ready(communicator, it); !verdict.good()) return answer(call, verdict, it.get());
  if (device == nullptr) return answer(call, {ncclInvalidArgument, "no place for the device was given"});
  *device = it->device;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int* rank) {
  const Call call("ncclCommUserRank");
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> it;
  if (const Verdict verdict = find_ready(communicator, it); !verdict.good()) return answer(call, verdict, it.get());
  if (rank == nullptr) return answer(call, {ncclInvalidArgument, "no place for the rank was given"});
  *rank = it->rank;
  return ncclSuccess;
}

}  // extern "C"
