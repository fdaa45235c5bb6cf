#include "parallel/cuda/nccl_sum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "parallel/cuda/nccl_check.hpp"

namespace shardscope::parallel {
namespace {

constexpr int kFirstSymmetric = 22'700;    // NCCL 2.27
constexpr int64_t kAlignment = 16;         // bytes, of rows
constexpr int64_t kWindowBytes = 2 << 20;  // multiples: what a device's memory is mapped in

/// Memory of ncclMemAlloc in a window of the session's communicator.
class Window {
 public:
  Window(std::shared_ptr<NcclSession> session, int64_t bytes) : session_(std::move(session)) {
    bytes = (bytes + kWindowBytes - 1) / kWindowBytes * kWindowBytes;
    result_ = ncclMemAlloc(&memory_, static_cast<size_t>(bytes));
    if (result_ != ncclSuccess) memory_ = nullptr;
    bytes_ = bytes;
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (window_ != nullptr) session_->deregister_window(window_);
    if (memory_ != nullptr) static_cast<void>(ncclMemFree(memory_));
  }

  /// Collective, on ranks that all have memory.
  bool open() {
    window_ = session_->register_window(memory_, bytes_);
    return window_ != nullptr;
  }
  void* memory() const { return memory_; }
  ncclResult_t result() const { return result_; }

 private:
  std::shared_ptr<NcclSession> session_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
  ncclResult_t result_ = ncclSuccess;
  ncclWindow_t window_ = nullptr;
};

class SymmetricActivations final : public kernels::ActivationBuffer {
 public:
  SymmetricActivations(const std::shared_ptr<NcclSession>& session, const DeviceStream& stream, int64_t rows,
                       int64_t columns, kernels::DType dtype)
      : rows_(rows), columns_(columns), dtype_(dtype) {
    const int64_t element = kernels::facts(dtype).block_bytes;
    const int64_t granule = kAlignment / element;
    stride_ = (columns + granule - 1) / granule * granule;
    bytes_ = rows * stride_ * element;
    window_ = std::make_unique<Window>(session, std::max<int64_t>(bytes_, 1));
    const std::string shape = fmt::format("activations [{}, {}]", rows, columns);
    const cuda::CallContext where{.detail = shape, .device = stream.device};
    if (window_->result() != ncclSuccess) {
      throw_nccl_error(window_->result(), "ncclMemAlloc", ncclGetLastError(nullptr), where);
    }
    if (!window_->open()) {
      throw SystemError("NCCL has no symmetric memory for these devices", cuda::place_of(where),
                        "use --allreduce nccl or auto");
    }
    cuda::check_cuda(cudaMemsetAsync(window_->memory(), 0, static_cast<size_t>(bytes_), stream.lend()),
                     "cudaMemsetAsync", where);
  }
  kernels::Activations view() const override { return {window_->memory(), rows_, columns_, stride_, dtype_}; }
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t rows_, columns_, stride_ = 0, bytes_ = 0;
  kernels::DType dtype_;
  std::unique_ptr<Window> window_;
};

}  // namespace

void NcclSum::all_reduce(void* data, int64_t count, kernels::DType dtype) {
  cuda::OperationStamps* const stamps = stream_.stamps_of_operation();
  const cuda::CallContext where{.device = stream_.device};
  if (stamps != nullptr) cuda::check_cuda(cuda::stamp_begin(stamps, stream_.lend()), "stamp_begin", where);
  session_->all_reduce(data, count, dtype, stream_.lend());
  if (stamps != nullptr) cuda::check_cuda(cuda::stamp_end(stamps, stream_.lend()), "stamp_end", where);
}

std::unique_ptr<kernels::ActivationBuffer> NcclSum::make_summed(int64_t rows, int64_t columns, kernels::DType dtype) {
  if (!symmetric_) return nullptr;
  return std::make_unique<SymmetricActivations>(session_, stream_, rows, columns, dtype);
}

std::shared_ptr<NcclSession> start_nccl(World& world, Communicator& host, int device) {
  ncclUniqueId id{};
  if (host.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw_nccl_error(result, "ncclGetUniqueId", ncclGetLastError(nullptr), {.device = device, .rank = host.rank()});
    }
  }
  host.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  return std::make_shared<NcclSession>(world, NcclPlace{.rank = host.rank(), .size = host.size(), .device = device},
                                       id);
}

std::string why_not_symmetric(NcclSession& session, Communicator& host) {
  enum Answer : int { kYes, kOldLibrary, kNoMemory, kNoWindow };
  int mine = kYes;
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess || version < kFirstSymmetric) mine = kOldLibrary;
  // The session is the caller's and lives longer: this owner gives nothing back.
  Window window(std::shared_ptr<NcclSession>(&session, [](NcclSession*) {}), 1);
  if (mine == kYes && window.memory() == nullptr) mine = kNoMemory;
  const auto worst = [&] {
    std::vector<int> all(static_cast<size_t>(host.size()));
    host.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return *std::max_element(all.begin(), all.end());
  };
  int answer = worst();
  if (answer == kYes) {
    if (!window.open()) mine = kNoWindow;
    answer = worst();
  }
  switch (answer) {
    case kOldLibrary:
      return fmt::format(
          "NCCL before 2.27 has no symmetric memory, this is {}.{}, what to do: a newer one, or --allreduce nccl",
          version / 10'000, version / 100 % 100);
    case kNoMemory:
      return "ncclMemAlloc gives no memory for symmetric windows, what to do: see NCCL_CUMEM_ENABLE, or --allreduce "
             "nccl";
    case kNoWindow:
      return "NCCL has no symmetric memory for these devices, what to do: peer access among all of them (nvidia-smi "
             "topo -p2p "
             "w) and no NCCL_CUMEM_ENABLE=0, or --allreduce nccl";
    default:
      return "";
  }
}

}  // namespace shardscope::parallel
