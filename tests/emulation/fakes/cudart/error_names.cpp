// Names and meanings of the errors that the stand-in runtime gives, or that a test may order (Options::failing).
#include <cuda_runtime.h>

#include <algorithm>
#include <iterator>

namespace {

struct Known {
  cudaError_t error;
  const char* name;
  const char* meaning;
};

#define SHARDSCOPE_ERROR(error, meaning) \
  { error, #error, meaning }
constexpr Known kKnown[] = {
    SHARDSCOPE_ERROR(cudaSuccess, "no error"),
    SHARDSCOPE_ERROR(cudaErrorInvalidValue, "invalid argument"),
    SHARDSCOPE_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    SHARDSCOPE_ERROR(cudaErrorInitializationError, "initialization error"),
    SHARDSCOPE_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    SHARDSCOPE_ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    SHARDSCOPE_ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    SHARDSCOPE_ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    SHARDSCOPE_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    SHARDSCOPE_ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    SHARDSCOPE_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    SHARDSCOPE_ERROR(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    SHARDSCOPE_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    SHARDSCOPE_ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    SHARDSCOPE_ERROR(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    SHARDSCOPE_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    SHARDSCOPE_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    SHARDSCOPE_ERROR(cudaErrorNotReady, "device not ready"),
    SHARDSCOPE_ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    SHARDSCOPE_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    SHARDSCOPE_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    SHARDSCOPE_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    SHARDSCOPE_ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    SHARDSCOPE_ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    SHARDSCOPE_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    SHARDSCOPE_ERROR(cudaErrorNotPermitted, "operation not permitted"),
    SHARDSCOPE_ERROR(cudaErrorNotSupported, "operation not supported"),
    SHARDSCOPE_ERROR(cudaErrorSystemNotReady, "system not yet initialized"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureImplicit,
                     "operation would make the legacy stream depend on a capturing blocking stream"),
    SHARDSCOPE_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    SHARDSCOPE_ERROR(cudaErrorStreamCaptureWrongThread,
                     "attempt to terminate a thread-local capture from another thread"),
    SHARDSCOPE_ERROR(cudaErrorUnknown, "unknown error"),
};
#undef SHARDSCOPE_ERROR

const Known* find(cudaError_t error) {
  const auto* const found =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& one) { return one.error == error; });
  return found == std::end(kKnown) ? nullptr : found;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const Known* const known = find(error);
  return known == nullptr ? "unrecognized error code" : known->name;
}
const char* cudaGetErrorString(cudaError_t error) {
  const Known* const known = find(error);
  return known == nullptr ? "unrecognized error code" : known->meaning;
}

}  // extern "C"
