// Groups, and the collectives' functions: what they refuse, and when their work goes into its stream.
#include <fmt/format.h>

#include <utility>

#include "tests/emulation/fakes/nccl/collective.hpp"
#include "tests/emulation/machine.hpp"

namespace shardscope::emulation::nccl {
namespace {

/// One thread that drives several ranks has to say so by a group, or it would wait in the first for the second. Whose
/// operations are done may be handed over to another thread.
Verdict check_driver(Communicator& communicator) {
  const uint64_t thread = this_thread();
  const uint64_t nonce = communicator.clique.shared().nonce;
  for (const auto& [handle, other] : library().communicators) {
    if (other.get() == &communicator || other->clique.shared().nonce != nonce || other->driver != thread) continue;
    if (!streams_hold(handle) && !graphs_hold(handle)) continue;
    return {ncclInvalidUsage,
            fmt::format("this thread also drives {} of the communicator, what to do: calls for several ranks from one "
                        "thread stand between ncclGroupStart and ncclGroupEnd",
                        other->description())};
  }
  communicator.driver = thread;
  return {};
}

Verdict enqueue(const Call& call, const Group::Enqueued& one) {
  const cudaError_t error = enqueue_work(call, one.stream, one.work);
  if (error == cudaSuccess) return {};
  return {ncclUnhandledCudaError, fmt::format("the stream refused it with CUDA error {}", static_cast<int>(error))};
}

/// Non-blocking communicators sometimes are not done when a call returns: whoever does not ask is then refused.
bool answers_late(Communicator& communicator) {
  if (communicator.blocking || Machine::get().random_below(3) == 0) return false;
  communicator.answers_in_progress = 1;
  return true;
}

Verdict add_collective(const Call& call, ncclComm_t handle, const Request& request,
                       std::shared_ptr<Communicator>& communicator) {
  if (Verdict verdict = find_ready(handle, communicator); !verdict.good()) return verdict;
  if (Verdict verdict = check(*communicator, request); !verdict.good()) return verdict;
  Group* const group = open_group();
  if (group != nullptr && !group->tasks.empty()) {
    return {ncclInvalidUsage, "collectives and initialisations or registrations in one group"};
  }
  if (group != nullptr && request.stream == nullptr) {
    return {ncclInvalidUsage, "the null stream in a group: whose it is depends on the device that is current then"};
  }
  if (Verdict verdict = check_group(communicator->blocking); !verdict.good()) return verdict;
  if (group == nullptr) {
    if (Verdict verdict = check_driver(*communicator); !verdict.good()) return verdict;
  }
  Group::Enqueued one{request.stream, make_collective(communicator, request), communicator};
  if (group != nullptr) {
    group->works.push_back(std::move(one));
    return {};
  }
  Verdict verdict = enqueue(call, one);
  if (verdict.good() && answers_late(*communicator)) verdict.code = ncclInProgress;
  return verdict;
}

ncclResult_t collective(const Call& call, ncclComm_t handle, const Request& request) {
  if (call.fails()) return ordered_answer(call);
  std::shared_ptr<Communicator> communicator;
  const Verdict verdict = add_collective(call, handle, request, communicator);
  Group* const group = open_group();
  if (group != nullptr && group->first_error.good() && !verdict.good()) {
    group->first_error = {verdict.code, fmt::format("{} in the group: {}", name(request.kind), verdict.why)};
  }
  return answer(call, verdict, communicator.get());
}

Verdict end_group(const Call& call) {
  Group* const open = open_group();
  if (open == nullptr) return {ncclInvalidUsage, "there was no ncclGroupStart before it in this thread"};
  if (--open->depth > 0) return {};
  const Group group = std::move(*open);
  library().groups.erase(this_thread());
  if (!group.first_error.good()) {
    for (const std::shared_ptr<Task>& task : group.tasks) task->drop();
    return group.first_error;
  }
  for (const Group::Enqueued& one : group.works) {
    if (one.communicator->aborted) continue;
    if (Verdict verdict = enqueue(call, one); !verdict.good()) return verdict;
  }
  if (!group.tasks.empty()) return run_tasks(call, group.tasks);
  bool late = false;
  for (const Group::Enqueued& one : group.works) late = answers_late(*one.communicator) || late;
  return {late ? ncclInProgress : ncclSuccess, ""};
}

}  // namespace
}  // namespace shardscope::emulation::nccl

using namespace shardscope::emulation;        // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::nccl;  // NOLINT(google-build-using-namespace)

extern "C" {

ncclResult_t ncclGroupStart() {
  const Call call("ncclGroupStart");
  if (call.fails()) return ordered_answer(call);
  Group& group = library().groups[this_thread()];
  if (group.depth++ == 0) group.held = std::make_unique<Held>("NCCL group that was begun and not ended");
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Call call("ncclGroupEnd");
  if (call.fails()) return ordered_answer(call);
  return answer(call, end_group(call));
}

ncclResult_t ncclAllReduce(const void* sent, void* received, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t communicator, cudaStream_t stream) {
  const Call call("ncclAllReduce");
  return collective(call, communicator,
                    {.kind = Kind::kAllReduce,
                     .sent = sent,
                     .received = received,
                     .count = count,
                     .type = type,
                     .reduction = reduction,
                     .stream = stream});
}

ncclResult_t ncclAllGather(const void* sent, void* received, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  const Call call("ncclAllGather");
  return collective(
      call, communicator,
      {.kind = Kind::kAllGather, .sent = sent, .received = received, .count = count, .type = type, .stream = stream});
}

ncclResult_t ncclReduceScatter(const void* sent, void* received, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t communicator, cudaStream_t stream) {
  const Call call("ncclReduceScatter");
  return collective(call, communicator,
                    {.kind = Kind::kReduceScatter,
                     .sent = sent,
                     .received = received,
                     .count = count,
                     .type = type,
                     .reduction = reduction,
                     .stream = stream});
}

ncclResult_t ncclBroadcast(const void* sent, void* received, size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  const Call call("ncclBroadcast");
  return collective(call, communicator,
                    {.kind = Kind::kBroadcast,
                     .sent = sent,
                     .received = received,
                     .count = count,
                     .type = type,
                     .root = root,
                     .stream = stream});
}

}  // extern "C"
