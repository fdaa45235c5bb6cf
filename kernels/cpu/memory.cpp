#include "kernels/cpu/memory.hpp"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "kernels/base/error.hpp"

namespace shardscope::kernels::cpu {

AlignedBytes::AlignedBytes(int64_t bytes) : size_(bytes) {
  constexpr int64_t kLine = 64;
  constexpr int64_t kHugePage = int64_t{2} << 20;  // x86-64 and 4 KiB-granule Arm
  const int64_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  const int64_t whole = (bytes + kReadPaddingBytes + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(whole))));
  if (!data_) {
    throw SystemError("no memory for " + std::to_string(bytes) + " bytes", "CPU backend",
                      "free memory, or choose a smaller model or context");
  }
  if (alignment == kHugePage) madvise(data_.get(), static_cast<size_t>(whole), MADV_HUGEPAGE);  // a wish, may fail
  std::memset(data_.get() + bytes, 0, kReadPaddingBytes);
}

}  // namespace shardscope::kernels::cpu
