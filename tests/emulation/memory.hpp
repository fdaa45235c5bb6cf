// The memory of the emulated machine: an address region for each device, one for pinned host memory and one for what
// other processes have shared; allocations with gaps between them, at an address again as late as possible; and the
// shared memory of a block. Knows bounds, life time and which bytes were written; who may access what is the checker's
// business.
//
// The bytes of devices lie in a file without a name, so that other processes can map them (fakes/cudart/ipc.cpp). They
// are accessible only between open() and close(): while nothing runs, a host that touches device memory faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulation/counters.hpp"
#include "tests/emulation/shadow.hpp"

namespace shardscope::emulation {

inline constexpr int kMostDevices = 8;
inline constexpr int kPinned = kMostDevices;        // the "device" of pinned host memory
inline constexpr int kImported = kMostDevices + 1;  // the "device" of other processes' device memory

struct Exported;  // fakes/cudart/ipc.hpp

/// One bit for each byte: written or not.
class WrittenBytes {
 public:
  explicit WrittenBytes(int64_t bytes);

  void set(int64_t offset, int64_t bytes, bool written);
  /// The first byte of the range that is not written, or -1.
  int64_t first_unwritten(int64_t offset, int64_t bytes) const;

 private:
  int64_t unwritten_;
  Zeroed zeroed_;
  uint8_t* bits_;
};

struct Allocation {
  Allocation(int its_device, int64_t its_number, std::byte* its_begin, int64_t its_bytes);

  int device;
  int64_t number;  // the how-manieth of the machine, from 1
  std::byte* begin;
  int64_t bytes;
  bool freed = false;
  ClassNumber allocation_class = kUnlabelledClass;
  std::string label;                  // the name of the class
  Exported* exported = nullptr;       // what all processes know of it, if they can map it
  int made_by = 0;                    // the device that was current then: of pinned memory
  int importer = -1;                  // the device that opened it, if it is another process's
  int64_t opened = 0;                 // how often
  std::vector<std::byte> its_handle;  // by which it was opened
  bool library_memory = false;        // of a library's own allocator: cudaFree is not for it
  WrittenBytes written;
  Shadow shadow;

  /// Lets go of what is known about its bytes: it has been freed.
  void forget_bytes();
  std::string description() const;  // "allocation 3 (4096 bytes, device 0, weights)"
};

class DeviceMemory {
 public:
  DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  /// Filled with 0xFF, which is NaN in fp16, bf16 and fp32 (above a GiB only the first MiB is, to save time). nullptr
  /// if the device's limit does not allow it. With an alignment (a power of two) above 256, the address is a multiple
  /// of it.
  Allocation* allocate(int device, int64_t bytes, int64_t limit_bytes, int64_t alignment = 0);
  /// Another process's allocation: its bytes, at `offset` of its file. `private_copy`: what is written stays here.
  Allocation* map_foreign(int file, int64_t offset, int64_t bytes, bool private_copy);
  /// The place of the allocation's bytes in file().
  int64_t offset_in_file(const Allocation& allocation) const { return allocation.begin - begin_; }
  int file() const { return file_; }
  /// False if `begin` is no allocation that lives. The bytes become inaccessible to the host, and the address belongs
  /// to a dead allocation until the device's region has been used up once.
  bool free(void* begin);

  /// True for every address of the regions, in an allocation or not.
  bool covers(const void* address) const { return address >= begin_ && address < begin_ + kAllBytes; }
  /// The allocation that holds the address, dead ones included, or nullptr.
  Allocation* find(const void* address) const;
  /// The allocation that ends or begins nearest to the address, or nullptr.
  const Allocation* nearest(const void* address) const;
  int device_of(const void* address) const;
  int64_t used_bytes(int device) const { return used_bytes_[device]; }
  const std::deque<Allocation>& allocations() const { return allocations_; }

  /// Makes device memory accessible, and inaccessible again. Nested calls count.
  void open();
  void close();
  /// While `losing`, what is written to that device's memory is lost at the end of it. Only while open.
  void lose_writes(int device, bool losing);

 private:
  static constexpr int64_t kRegionBytes = int64_t{256} << 30;
  static constexpr int64_t kDeviceBytes = kRegionBytes * kMostDevices;
  static constexpr int64_t kAllBytes = kRegionBytes * (kMostDevices + 2);
  static constexpr int64_t kChunkBytes = 64 << 10;  // an allocation begins in a chunk of its own

  /// The first of that many chunks of the device's region that no live allocation has: the next ones, from the begin
  /// again after the end. -1 if there are none.
  int64_t free_chunks(int device, int64_t count) const;
  /// The chunks of `bytes` with gaps, in the device's region.
  std::byte* take_chunks(int device, int64_t count);
  Allocation& add(int device, std::byte* chunk, int64_t chunks, std::byte* begin, int64_t bytes);
  void add_live(std::byte* chunks, int64_t bytes);
  void remove_live(std::byte* chunks, int64_t bytes);
  void protect(bool accessible) const;

  std::byte* begin_;
  int file_ = -1;
  int opened_ = 0;
  std::map<std::byte*, int64_t> live_;         // begins and bytes of what open() opens, neighbours as one
  int64_t next_chunk_[kMostDevices + 2] = {};  // of the region
  int64_t used_bytes_[kMostDevices + 2] = {};
  std::deque<Allocation> allocations_;
  uint32_t* chunks_;  // [all chunks] 1 + index of the allocation that lay there last, 0: none
};

/// The shared memory of one block: its variables with gaps between them.
class SharedMemory {
 public:
  SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  struct Variable {
    const void* key;  // nullptr: the dynamic shared memory
    std::string_view name;
    std::byte* begin;
    int64_t bytes;
  };

  /// For a new block: no variables but the dynamic one, nothing written.
  void begin_block(int64_t dynamic_bytes);
  /// The variable of that key, declared at its first use. nullptr when the block's shared memory is full.
  std::byte* variable(const void* key, int64_t bytes, std::string_view name);
  std::byte* dynamic() const { return variables_.front().begin; }

  bool covers(const void* address) const { return address >= begin_ && address < begin_ + kBytes; }
  /// The variable that holds the address, or nullptr.
  const Variable* find(const void* address) const;
  const Variable* nearest(const void* address) const;
  int64_t offset(const void* address) const { return static_cast<const std::byte*>(address) - begin_; }

  WrittenBytes& written() { return written_; }
  Shadow& shadow() { return shadow_; }

 private:
  static constexpr int64_t kBytes = 512 << 10;
  static constexpr int64_t kGapBytes = 64;

  std::byte* declare(const void* key, int64_t bytes, std::string_view name);

  std::byte* begin_;
  int64_t used_ = 0;
  std::vector<Variable> variables_;
  WrittenBytes written_;
  Shadow shadow_;
};

}  // namespace shardscope::emulation
