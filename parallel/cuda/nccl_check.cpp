#include "parallel/cuda/nccl_check.hpp"

#include <fmt/format.h>

#include <string>

#include "kernels/base/error.hpp"

namespace shardscope::parallel {
namespace {

/// What NCCL writes (its WARN lines), and what helps then.
struct Hint {
  std::string_view words;
  std::string_view advice;
};
constexpr Hint kHints[] = {
    {"Duplicate GPU",
     "two ranks are on one GPU, or on two MIG instances of it, which NCCL refuses: give each rank a GPU of its own, or "
     "use an all-reduce without NCCL"},
    {"Mismatched NCCL version",
     "the ranks loaded different versions of libnccl.so.2: set LD_LIBRARY_PATH alike on all hosts"},
    {"shared memory", "NCCL needs more of /dev/shm: docker --shm-size=1g or --ipc=host, or NCCL_SHM_DISABLE=1"},
    {"No space left on device", "NCCL needs more of /dev/shm: docker --shm-size=1g or --ipc=host"},
    {"Cannot allocate memory", "raise the limit of locked memory (ulimit -l unlimited, docker --ulimit memlock=-1)"},
    {"no socket interface found", "name the network interface that joins the hosts in NCCL_SOCKET_IFNAME"},
    {"Connection refused", "name the network interface that joins the hosts in NCCL_SOCKET_IFNAME; see firewalls"},
    {"CUDA driver version is insufficient",
     "this libnccl.so.2 was built for a newer CUDA than the driver supports: update the driver, or load another NCCL"},
    {"out of memory",
     "leave NCCL some memory of the device: a higher --tp, a smaller batch or context, or NCCL_BUFFSIZE=1048576"},
};

constexpr std::string_view kLookInto = "set NCCL_DEBUG=INFO to see which call failed, and why";

}  // namespace

std::string_view nccl_advice(ncclResult_t result, std::string_view last_error) {
  for (const Hint& hint : kHints) {
    if (last_error.find(hint.words) != std::string_view::npos) return hint.advice;
  }
  switch (result) {
    case ncclUnhandledCudaError:
      return "set NCCL_DEBUG=INFO to see which CUDA call failed: often memory of the device is short, or the driver "
             "older than NCCL's CUDA";
    case ncclSystemError:
      return "set NCCL_DEBUG=INFO to see which system call failed: often /dev/shm is small or the network interface "
             "wrong (NCCL_SOCKET_IFNAME)";
    case ncclRemoteError:
      return "another rank has ended, or the network between the hosts failed: see that rank's own words";
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return "this looks like a bug of shardscope: please report it with the output under NCCL_DEBUG=INFO";
    case ncclInternalError:
    case ncclInProgress:
    case ncclSuccess:
    case ncclNumResults:
      break;
  }
  return kLookInto;
}

void throw_nccl_error(ncclResult_t result, std::string_view operation, std::string_view last_error,
                      const cuda::CallContext& context) {
  std::string what =
      fmt::format("NCCL error {} ({}): {}", static_cast<int>(result), ncclGetErrorString(result), operation);
  if (!last_error.empty()) what += fmt::format(": {}", last_error);
  std::string where = fmt::format("{}", context.detail);
  const std::string place = cuda::place_of(context);
  if (!where.empty() && !place.empty()) where += ", ";
  where += place;
  throw SystemError(what, where, nccl_advice(result, last_error));
}

}  // namespace shardscope::parallel
