// Handles, the version, and what status codes are called.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tests/emulation/fakes/cublaslt/registry.hpp"
#include "tests/emulation/machine.hpp"

using namespace shardscope::emulation;            // NOLINT(google-build-using-namespace): these have C names
using namespace shardscope::emulation::cublaslt;  // NOLINT(google-build-using-namespace)

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Call call("cublasLtCreate");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_NOT_INITIALIZED);
  if (handle == nullptr) return refuse(call, CUBLAS_STATUS_INVALID_VALUE, "nowhere to put the handle");
  if (Machine::get().devices() == 0) return refuse(call, CUBLAS_STATUS_NOT_INITIALIZED, "this process sees no GPU");
  const int device = current_device();
  *handle = Registry::get().add<Handle, cublasLtHandle_t>(
      std::unique_ptr<Handle>(new Handle{device, Held(fmt::format("cuBLASLt handle of device {}", device))}));
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const Call call("cublasLtDestroy");
  if (call.fails()) return ordered(call, CUBLAS_STATUS_NOT_INITIALIZED);
  std::string why;
  if (Registry::get().find<Handle>(handle, why) == nullptr) {
    return refuse(call, CUBLAS_STATUS_NOT_INITIALIZED, fmt::format("the handle is {}", why));
  }
  Registry::get().remove<Handle>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
  const Call call("cublasLtGetVersion");
  return CUBLAS_VERSION;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  const Call call("cublasLtGetStatusName");
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "unknown status";
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  const Call call("cublasLtGetStatusString");
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library has not been initialised";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "a resource could not be allocated";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an argument is invalid, or arguments do not go together";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "the device cannot run this";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "memory could not be accessed";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the work could not be started on the device";
    case CUBLAS_STATUS_INTERNAL_ERROR:
      return "an operation within the library failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "there is no implementation for this";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "the licence does not allow this";
  }
  return "unknown status";
}

}  // extern "C"
