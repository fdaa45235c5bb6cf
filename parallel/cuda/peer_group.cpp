#include "parallel/cuda/peer_group.hpp"

#include <fmt/format.h>

#include <chrono>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "parallel/cuda/call_notes.hpp"

namespace shardscope::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kLoggedCalls = 4096;  // 25 tokens of 80 layers
// A rank that fails lets the others' waits run out before it can say on the board why.
constexpr std::chrono::milliseconds kOthersMayPost{1000};

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

PeerGroup::PeerGroup(World& world, Communicator& host, const Options& options)
    : world_(world),
      device_(options.device),
      own_rank_(host.rank()),
      wait_(world.timeout()),
      flags_(where()),
      stream_(cuda::make_stream(where())) {
  at_failure_ = world_.at_failure([this] { abort(); });
  try {
    memory_.emplace(world, host, flags_, stream_.get(),
                    PeerMemory::Options{.device = options.device,
                                        .bytes = cuda::peer_inbox_bytes(host.size(), options.capacity),
                                        .shared_devices = options.shared_devices,
                                        .proof_wait = options.proof_wait});
    if (!memory_->why_not().empty()) return;
    constexpr std::string_view kPurpose = "the state of collectives";
    const int64_t log_bytes = options.keep_times ? kLoggedCalls * static_cast<int64_t>(sizeof(cuda::CallTimes)) : 0;
    state_ = cuda::DeviceBuffer(sizeof(cuda::PeerState), kPurpose, where());
    log_ = cuda::DeviceBuffer(log_bytes, kPurpose, where());
    cuda::check_cuda(cudaMemsetAsync(state_.data(), 0, sizeof(cuda::PeerState), stream_.get()), "cudaMemsetAsync",
                     where());
    if (log_bytes > 0) {
      cuda::check_cuda(cudaMemsetAsync(log_.data(), 0, static_cast<size_t>(log_bytes), stream_.get()),
                       "cudaMemsetAsync", where());
    }
    memory_->finish("clearing of the state of collectives");
  } catch (...) {
    world_.cancel_at_failure(at_failure_);
    throw;
  }
  rank_ = {.rank = host.rank(),
           .ranks = host.size(),
           .capacity = options.capacity,
           .inboxes = memory_->addresses(),
           .state = state_.as<cuda::PeerState>(),
           .log = {.entries = log_.as<cuda::CallTimes>(), .count = options.keep_times ? kLoggedCalls : 0},
           .abort_word = flags_.abort_word(),
           .wait_ns = static_cast<uint64_t>(std::chrono::nanoseconds(wait_).count()),
           .failure_on_host = flags_.failure_word()};
}

PeerGroup::~PeerGroup() {
  world_.cancel_at_failure(at_failure_);
  if (std::uncaught_exceptions() > exceptions_at_start_) abort();
  // First what cudaFree waits for kernels with, which an abort ends; then what they read and write until then.
  state_ = {};
  log_ = {};
  memory_.reset();
}

void PeerGroup::begin(const Call& call) {
  require(!flags_.aborted(), "a sum by peer access after the end of its group");
  last_ = call;
}

void PeerGroup::enqueued(cudaError_t result) const {
  if (result == cudaSuccess) return;
  const std::string detail = fmt::format("{} elements of {}", last_.count, kernels::facts(last_.dtype).name);
  cuda::throw_cuda_error(result, last_.operation, where(detail));
}

std::vector<cuda::CallTimes> PeerGroup::times() const {
  return read_log(rank_.log, device_);
}

void PeerGroup::check() {
  const uint32_t failure = flags_.failure();
  if (failure == 0) return;
  const int rank = static_cast<int>(failure & ~cuda::kAnotherCall) - 1;
  if ((failure & cuda::kAnotherCall) != 0) fail_for_another_call(rank);
  fail_for_missing(rank);
}

/// Not what another rank's failure may explain: all ranks concerned find it at once.
void PeerGroup::fail_for_another_call(int other) {
  abort();
  throw BugError(fmt::format(
      "ranks are in different collectives: rank {} on {} is in another one than this rank, or in one of another size, "
      "{}, unless the ranks run different versions of the program",
      other, host_of(other), latest()));
}

void PeerGroup::fail_for_missing(int missing) {
  const bool aborted = flags_.aborted();
  abort();
  // Another rank's failure may be the cause: then the board, which the wait watches, soon says which and why.
  const Clock::time_point end = Clock::now() + kOthersMayPost;
  world_.wait([&] { return Clock::now() >= end; }, last_.operation, memory_->members());
  throw SystemError(
      fmt::format("a sum by peer access has no result: data of rank {} on {} did not come {}", missing,
                  host_of(missing), aborted ? "before it was given up" : fmt::format("within {}", seconds_text(wait_))),
      latest(),
      "see what that rank was doing; a longer --timeout where it only takes its time; --allreduce nccl where peer "
      "access loses data");
}

const std::string& PeerGroup::host_of(int rank) const {
  const std::vector<std::string>& hosts = world_.hosts();
  return static_cast<size_t>(rank) < hosts.size() ? hosts[static_cast<size_t>(rank)] : world_.host();
}

std::string PeerGroup::latest() const {
  return fmt::format("the latest call enqueued was {} of {} elements of {}, {}", last_.operation, last_.count,
                     kernels::facts(last_.dtype).name, cuda::place_of(where()));
}

cuda::CallContext PeerGroup::where(std::string_view detail) const {
  return {.detail = detail, .device = device_, .rank = own_rank_};
}

}  // namespace shardscope::parallel
