// Zeroed memory for what the machine keeps of other memory: may be larger than the computer's, since pages that nobody
// touches cost nothing; little of it costs no call of the system.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "kernels/base/error.hpp"

namespace shardscope::emulation {

class Zeroed {
 public:
  explicit Zeroed(int64_t bytes)
      : bytes_(static_cast<size_t>(bytes)),
        memory_(mapped()
                    ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                    : std::calloc(bytes_, 1)) {
    require(memory_ != nullptr && memory_ != MAP_FAILED, "emulation: no memory to keep what is known of memory");
  }
  Zeroed(const Zeroed&) = delete;
  Zeroed& operator=(const Zeroed&) = delete;
  ~Zeroed() {
    if (mapped()) {
      munmap(memory_, bytes_);
    } else {
      std::free(memory_);
    }
  }

  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  static constexpr size_t kMostOnHeap = 64 << 10;
  bool mapped() const { return bytes_ > kMostOnHeap; }

  size_t bytes_;
  void* memory_;
};

}  // namespace shardscope::emulation
