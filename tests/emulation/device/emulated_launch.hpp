// How a kernel becomes known to the emulation: its address, the sizes of its parameters and a function that calls it.
// Included by kernels/cuda/launch.hpp when it is compiled for the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#ifdef SHARDSCOPE_CHECKED
/// By this symbol a program finds out that its kernels call the hooks.
extern "C" __attribute__((used, visibility("default"))) inline const char shardscope_kernels_are_checked = 1;
#endif

namespace shardscope::emulation {

/// A kernel as the stand-in runtime sees it.
struct KernelEntry {
  const void* kernel = nullptr;
  void (*call)(const void* kernel, void* const* arguments) = nullptr;
  const size_t* argument_bytes = nullptr;
  const bool* read_only = nullptr;  // of each argument: a pointer to const
  size_t arguments = 0;
};

/// Makes a kernel known; calling it again is harmless.
void declare_kernel(const KernelEntry& entry);

template <class... Parameters, size_t... Index>
__attribute__((no_sanitize("thread"))) void call_kernel(void (*kernel)(Parameters...), void* const* arguments,
                                                        std::index_sequence<Index...>) {
  kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[Index])...);
}

template <class... Parameters>
__attribute__((no_sanitize("thread"))) void call_erased(const void* kernel, void* const* arguments) {
  call_kernel(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(kernel)), arguments,
              std::index_sequence_for<Parameters...>());
}

template <class... Parameters>
void declare_kernel(void (*kernel)(Parameters...)) {
  static constexpr size_t kBytes[] = {sizeof(Parameters)..., 0};
  static constexpr bool kReadOnly[] = {
      (std::is_pointer_v<Parameters> && std::is_const_v<std::remove_pointer_t<Parameters>>)..., false};
  declare_kernel(KernelEntry{reinterpret_cast<const void*>(kernel), &call_erased<Parameters...>, kBytes, kReadOnly,
                             sizeof...(Parameters)});
}

}  // namespace shardscope::emulation
