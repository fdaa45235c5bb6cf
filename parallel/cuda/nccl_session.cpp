#include "parallel/cuda/nccl_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "parallel/cuda/nccl_check.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that fails ends its communicator, which others notice, before it can say on the board why.
constexpr std::chrono::milliseconds kOthersMayPost{1000};
constexpr std::chrono::microseconds kEnqueueing{200};
// Longest orderly end: the others may still be on their way here.
constexpr std::chrono::seconds kOrderlyEnd{5};
// ncclCommAbort waits for kernels of a device that may be broken, and for graphs that hold operations of the
// communicator; others may only be able to go on to destroy those when we return.
constexpr std::chrono::milliseconds kFirstOfAbort{200};
constexpr std::chrono::seconds kAllOfAbort{3};
constexpr std::chrono::milliseconds kAbortAgain{2};

ncclDataType_t type_of(kernels::DType dtype) {
  switch (dtype) {
    case kernels::DType::kF32:
      return ncclFloat32;
    case kernels::DType::kF16:
      return ncclFloat16;
    case kernels::DType::kBF16:
      return ncclBfloat16;
    case kernels::DType::kQ4_0:
    case kernels::DType::kQ4_1:
    case kernels::DType::kQ8_0:
      break;
  }
  throw BugError(fmt::format("an all-reduce of {}", kernels::facts(dtype).name));
}

}  // namespace

NcclSession::NcclSession(World& world, const NcclPlace& place) : world_(world), place_(place) {
  // A world without MPI knows only this rank, whatever the group.
  awaited_.resize(static_cast<size_t>(std::min(place.size, world.size())));
  std::iota(awaited_.begin(), awaited_.end(), 0);
  at_failure_ = world_.at_failure([this] { abort(); });
}

template <class Body>
void NcclSession::or_abort(const Body& body) {
  require(!aborted_.valid(), "NCCL is used after its end");
  try {
    body();
  } catch (...) {
    abort();
    throw;
  }
}

NcclSession::NcclSession(World& world, const NcclPlace& place, const ncclUniqueId& id) : NcclSession(world, place) {
  or_abort([&] {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    settle(ncclCommInitRankConfig(&communicator_, place.size, id, place.rank, &config),
           {.operation = "ncclCommInitRankConfig"});
  });
}

NcclSession::~NcclSession() {
  world_.cancel_at_failure(at_failure_);
  if (communicator_ == nullptr) return;
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  if (!aborted_.valid() && (unwinding || !end_orderly())) abort();
  end_abort();
}

void NcclSession::all_reduce(void* data, int64_t count, kernels::DType dtype, cudaStream_t stream) {
  or_abort([&] {
    last_ = {.operation = "ncclAllReduce", .count = count, .dtype = dtype};
    const ncclResult_t result =
        ncclAllReduce(data, data, static_cast<size_t>(count), type_of(dtype), ncclSum, communicator_, stream);
    if (result != ncclSuccess) settle(result, last_);
  });
}

ncclWindow_t NcclSession::register_window(void* memory, int64_t bytes) {
  // NCCL may still write there after a wait that has failed.
  ncclWindow_t& window = *windows_.emplace_back(std::make_unique<ncclWindow_t>(nullptr));
  or_abort([&] {
    settle(ncclCommWindowRegister(communicator_, memory, static_cast<size_t>(bytes), &window, NCCL_WIN_COLL_SYMMETRIC),
           {.operation = "ncclCommWindowRegister"});
  });
  return window;  // NCCL answers "success" and leaves it null without support
}

void NcclSession::deregister_window(ncclWindow_t window) noexcept {
  if (!aborted_.valid()) static_cast<void>(ncclCommWindowDeregister(communicator_, window));
}

void NcclSession::check() {
  or_abort([&] { check_state(); });
}

void NcclSession::wait(const std::function<bool()>& ready, std::string_view what) {
  or_abort([&] {
    world_.wait(
        [&] {
          check_state();
          return ready();
        },
        what, awaited_);
  });
}

void NcclSession::check_state() {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(communicator_, &state);
  if (result != ncclSuccess) fail(result, {.operation = "ncclCommGetAsyncError"});
  if (state != ncclSuccess && state != ncclInProgress) fail(state, last_);
}

void NcclSession::settle(ncclResult_t result, const Call& call) {
  if (result == ncclInProgress) {
    ncclResult_t state = ncclInProgress;
    const auto settled = [&] {
      result = ncclCommGetAsyncError(communicator_, &state);
      return result != ncclSuccess || state != ncclInProgress;
    };
    // A thread of NCCL's enqueues a sum within some 50 us; a wait of the world's may sleep longer than that.
    const Clock::time_point end = Clock::now() + kEnqueueing;
    bool done = settled();
    while (!done && Clock::now() < end) done = settled();
    if (!done) world_.wait(settled, call.operation, awaited_);
    if (result == ncclSuccess) result = state;
  }
  if (result != ncclSuccess) fail(result, call);
}

void NcclSession::fail(ncclResult_t result, const Call& call) {
  const std::string last_error = ncclGetLastError(communicator_);
  const bool of_others =
      place_.size > 1 && (result == ncclRemoteError || result == ncclSystemError || result == ncclInternalError);
  if (of_others) {
    // That may be another rank's failure: then the board, which the wait watches, soon says which and why.
    const Clock::time_point end = Clock::now() + kOthersMayPost;
    world_.wait([&] { return Clock::now() >= end; }, call.operation, awaited_);
  }
  std::string detail;
  if (call.count >= 0) detail = fmt::format("{} elements of {}", call.count, kernels::facts(call.dtype).name);
  throw_nccl_error(result, call.operation, last_error,
                   {.detail = detail, .device = place_.device, .rank = place_.rank});
}

bool NcclSession::end_orderly() noexcept {
  try {
    ncclResult_t state = ncclCommFinalize(communicator_);
    if (state == ncclInProgress) {
      const Clock::time_point end = Clock::now() + kOrderlyEnd;
      world_.wait(
          [&] {
            return ncclCommGetAsyncError(communicator_, &state) != ncclSuccess || state != ncclInProgress ||
                   Clock::now() >= end;
          },
          "ncclCommFinalize", awaited_);
    }
    if (state != ncclSuccess) return false;
  } catch (...) {
    return false;  // another rank has failed, of which the world's own end tells
  }
  const ncclResult_t result = ncclCommDestroy(communicator_);
  return result == ncclSuccess || result == ncclInProgress;  // either way the handle is no more
}

void NcclSession::abort() noexcept {
  if (communicator_ == nullptr || aborted_.valid()) return;
  try {
    std::promise<void> done;
    aborted_ = done.get_future();
    aborting_ = std::thread([communicator = communicator_, told = std::move(done)]() mutable {
      // Refused while there are graphs, where it does not wait for their end.
      const Clock::time_point end = Clock::now() + kAllOfAbort;
      while (ncclCommAbort(communicator) == ncclInvalidUsage && Clock::now() < end) {
        std::this_thread::sleep_for(kAbortAgain);
      }
      told.set_value();
    });
    aborted_.wait_for(kFirstOfAbort);
  } catch (const std::system_error&) {
    // No thread to be had: what NCCL holds goes with the process.
  }
}

void NcclSession::end_abort() noexcept {
  if (!aborting_.joinable()) return;
  if (aborted_.wait_for(kAllOfAbort) == std::future_status::ready) {
    aborting_.join();
  } else {
    aborting_.detach();  // it stays with the process, which is about to end; kernels have been told by now
  }
}

}  // namespace shardscope::parallel
