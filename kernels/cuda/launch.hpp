// The only way to start a kernel: `launch` converts the arguments to the kernel's parameter types and hands them to
// cudaLaunchKernelExC. `<<<>>>` is not C++, and hides from a stand-in runtime how large each argument is, which it must
// know to keep arguments until the stream reaches the launch. Compiled by nvcc and, for the tests, by g++.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#ifdef SHARDSCOPE_EMULATED
#include <emulated_launch.hpp>
#endif

namespace shardscope::cuda {

/// Where and how wide a kernel runs.
struct Launch {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic shared memory; above 48 KiB the kernel needs `allow_shared_bytes` first
  cudaStream_t stream = nullptr;
  // May start while its predecessor in the stream still runs (programmatic dependent launch, sm_90 and later): the
  // kernel must call grid_dependency_wait() before it touches what the predecessor, or any kernel before it, reads or
  // writes.
  bool programmatic = false;
};

/// Enqueues kernel(arguments...) on where.stream and returns at once. Does not clear or read the runtime's last error.
/// Arguments are converted to the kernel's parameter types and copied now.
template <class... Parameters, class... Arguments>
[[nodiscard]] cudaError_t launch(const Launch& where, void (*kernel)(Parameters...), Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "one argument for each parameter of the kernel");
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel's arguments are copied byte by byte");
#ifdef SHARDSCOPE_EMULATED
  emulation::declare_kernel(kernel);
#endif
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = where.grid;
  config.blockDim = where.block;
  config.dynamicSmemBytes = where.shared_bytes;
  config.stream = where.stream;
  config.attrs = &attribute;
  config.numAttrs = where.programmatic ? 1 : 0;
  std::tuple<std::remove_cv_t<Parameters>...> values{
      static_cast<std::remove_cv_t<Parameters>>(std::forward<Arguments>(arguments))...};
  return std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
      },
      values);
}

/// Allows `kernel` that much dynamic shared memory on the current device (the default is 48 KiB). Always the most that
/// the kernel may ever be given, not what this launch takes: a lower limit might be held against launches that are
/// recorded in a graph already.
template <class... Parameters>
[[nodiscard]] cudaError_t allow_shared_bytes(void (*kernel)(Parameters...), size_t bytes) {
#ifdef SHARDSCOPE_EMULATED
  emulation::declare_kernel(kernel);
#endif
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(bytes));
}

/// What the runtime knows of `kernel` as it runs on the current device.
template <class... Parameters>
[[nodiscard]] cudaError_t kernel_attributes(cudaFuncAttributes& attributes, void (*kernel)(Parameters...)) {
#ifdef SHARDSCOPE_EMULATED
  emulation::declare_kernel(kernel);
#endif
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace shardscope::cuda
