// One ncclComm_t from its start to its end, with no call that could wait for ever: it is non-blocking, and what it has
// in progress is awaited through World, which watches the other ranks. Between NcclSum and NCCL only.
//
// What that costs: NCCL starts a host thread for each call of a non-blocking communicator, which a replayed graph does
// not pay.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/dtype.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {

/// Who this process is in a group: ranks 0 .. size - 1 of the world.
struct NcclPlace {
  int rank = 0;
  int size = 1;
  int device = 0;
};

class NcclSession {
 public:
  /// All ranks of the group together, each with its device current. id: rank 0's, from ncclGetUniqueId. Throws
  /// PeerFailure or SystemError, within the world's timeout.
  NcclSession(World& world, const NcclPlace& place, const ncclUniqueId& id);
  NcclSession(const NcclSession&) = delete;
  NcclSession& operator=(const NcclSession&) = delete;
  /// Ends orderly, together with the others, within some seconds; aborts if that does not succeed, or while an
  /// exception unwinds the stack. What is in streams should be done, and graphs destroyed.
  ~NcclSession();

  // Whatever one of these throws, or a wait of the world because of another rank, NCCL is aborted before: the stream
  // then comes to its end, for which whoever frees device memory while the stack unwinds would wait.

  /// Enqueues the sum over the ranks, in place. The stream may be captured. Does not wait for other ranks but where
  /// NCCL connects to them first.
  void all_reduce(void* data, int64_t count, kernels::DType dtype, cudaStream_t stream);

  /// Makes memory of ncclMemAlloc a symmetric window: sums within it are made by NCCL's kernels for such memory. The
  /// same calls on all ranks. Null where NCCL cannot do that with these devices.
  ncclWindow_t register_window(void* memory, int64_t bytes);
  /// Before the memory's end, and when nothing in streams or graphs uses it any more.
  void deregister_window(ncclWindow_t window) noexcept;

  /// Throws if NCCL has noticed an error since.
  void check();

  /// World::wait for `ready`, with `check` between: ends when a rank fails, dies, or stands still.
  void wait(const std::function<bool()>& ready, std::string_view what);

  /// Aborts, so that what is in streams ends without a result; where graphs hold operations, as soon as those are
  /// destroyed. Returns soon.
  void abort() noexcept;

 private:
  /// What an error is about.
  struct Call {
    std::string_view operation;  // of static lifetime
    int64_t count = -1;
    kernels::DType dtype = kernels::DType::kF32;
  };

  NcclSession(World& world, const NcclPlace& place);

  void check_state();
  void settle(ncclResult_t result, const Call& call);
  [[noreturn]] void fail(ncclResult_t result, const Call& call);
  bool end_orderly() noexcept;
  void end_abort() noexcept;
  template <class Body>
  void or_abort(const Body& body);

  World& world_;
  NcclPlace place_;
  std::vector<int> awaited_;  // ranks of the group
  ncclComm_t communicator_ = nullptr;
  Call last_{.operation = "ncclAllReduce"};
  std::vector<std::unique_ptr<ncclWindow_t>> windows_;  // where NCCL puts them
  int64_t at_failure_ = 0;                              // World's number
  std::thread aborting_;
  std::future<void> aborted_;  // valid since abort
  int exceptions_at_start_ = std::uncaught_exceptions();
};

}  // namespace shardscope::parallel
