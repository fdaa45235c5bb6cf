// What each error code of the CUDA runtime tells a user. Meanings: CUDA Runtime API, "CUDA Error types" (cudaError).
#include "kernels/cuda/check.hpp"

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::cuda {

std::string_view advice_for(cudaError_t error) {
  switch (error) {  // NOLINT: of more than a hundred codes those that users meet
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
      return "this looks like a bug of shardscope: please report it with the command line";
    case cudaErrorMemoryAllocation:
      return "use a higher --tp, a smaller batch or context, or free the device's memory (nvidia-smi shows who holds "
             "it)";
    case cudaErrorInitializationError:
      return "look at nvidia-smi and the kernel log (dmesg) for what the driver says";
    case cudaErrorInsufficientDriver:
      return "update the NVIDIA driver, or build with an older CUDA toolkit";
    case cudaErrorDevicesUnavailable:
      return "the device is held by another process in exclusive mode, or is busy: see nvidia-smi, or set its compute "
             "mode back with nvidia-smi -c DEFAULT";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return "see nvidia-smi -L and CUDA_VISIBLE_DEVICES for the devices that this process may use";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
      return "this build has no code for that device: build with its compute capability in CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorUnsupportedPtxVersion:
      return "the driver is too old to compile this build's code for that device: update it, or build with its compute "
             "capability in CMAKE_CUDA_ARCHITECTURES";
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
      return "the hardware reports an error: see nvidia-smi -q and Xid lines in dmesg; the device has to be reset or "
             "replaced";
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorPeerAccessNotEnabled:
      return "these devices cannot reach each other's memory: use an all-reduce that does without (--allreduce nccl)";
    case cudaErrorOperatingSystem:
      return "the operating system refused: in a container, share IPC and memory limits with the host (docker "
             "--ipc=host --ulimit memlock=-1)";
    case cudaErrorNotPermitted:
      return "the driver does not permit this here: containers need the capabilities that NVIDIA's runtime gives";
    case cudaErrorNotSupported:
      return "this device, driver or platform does not offer it (MIG instances and virtual GPUs lack some functions)";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "a kernel failed, maybe one that was started before: see Xid lines in dmesg; CUDA_LAUNCH_BLOCKING=1 or "
             "compute-sanitizer finds which; please report it";
    case cudaErrorLaunchTimeout:
      return "the driver stopped a kernel that took too long: use a device that drives no display, or raise its "
             "watchdog's limit";
    case cudaErrorSystemNotReady:
      return "start the fabric manager in the driver's own version (systemctl status nvidia-fabricmanager), and wait "
             "until nvidia-smi -q shows the fabric's state as Completed";
    case cudaErrorSystemDriverMismatch:
      return "the driver's kernel module and its library differ in version: reboot, or reload the module after the "
             "update";
    case cudaErrorCompatNotSupportedOnDevice:
      return "CUDA's forward compatibility package does not support this device: take it off LD_LIBRARY_PATH, or "
             "update the driver";
    case cudaErrorUnknown:
      return "the driver is in disorder: see dmesg and nvidia-smi; reloading it or a reboot helps most times";
    default:
      return "";
  }
}

std::string place_of(const CallContext& context) {
  if (context.device < 0) return context.rank < 0 ? "" : fmt::format("rank {}", context.rank);
  const std::string device = fmt::format("device {}", context.device);
  return context.rank < 0 ? device : fmt::format("{} of rank {}", device, context.rank);
}

void throw_cuda_error(cudaError_t error, std::string_view operation, const CallContext& context) {
  std::string where = fmt::format("{}", context.detail);
  const std::string place = place_of(context);
  if (!where.empty() && !place.empty()) where += ", ";
  where += place;
  throw SystemError(fmt::format("CUDA error {} ({}): {}: {}", static_cast<int>(error), cudaGetErrorName(error),
                                operation, cudaGetErrorString(error)),
                    where, advice_for(error));
}

}  // namespace shardscope::cuda
