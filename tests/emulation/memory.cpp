#include "tests/emulation/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "kernels/base/error.hpp"

namespace shardscope::emulation {
namespace {

constexpr int kPoison = 0xFF;
constexpr int64_t kFilledBytes = int64_t{1} << 30;

void* reserve(int64_t bytes, int protection) {
  void* const memory =
      mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, "emulation: no address space for device memory");
  return memory;
}

/// Of pieces with `begin` and `bytes`, the one that holds the address or lies nearest to it; nullptr if all are empty.
template <class Pieces>
auto nearest_of(const Pieces& pieces, const void* address) -> decltype(&*pieces.begin()) {
  const auto* const at = static_cast<const std::byte*>(address);
  decltype(&*pieces.begin()) best = nullptr;
  int64_t best_distance = 0;
  for (const auto& piece : pieces) {
    const int64_t distance = at < piece.begin ? piece.begin - at : std::max<int64_t>(at - piece.begin - piece.bytes, 0);
    if (piece.bytes > 0 && (best == nullptr || distance < best_distance)) {
      best = &piece;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

// ---- which bytes were written ---------------------------------------------------------------------------------------

WrittenBytes::WrittenBytes(int64_t bytes)
    : bytes_(bytes), unwritten_(bytes), bits_(static_cast<uint8_t*>(reserve(bytes / 8 + 1, PROT_READ | PROT_WRITE))) {}

WrittenBytes::~WrittenBytes() {
  munmap(bits_, static_cast<size_t>(bytes_ / 8 + 1));
}

void WrittenBytes::set(int64_t offset, int64_t bytes, bool written) {
  if (written && unwritten_ == 0) return;
  const int64_t end = offset + bytes;
  for (int64_t at = offset; at < end;) {
    if (at % 8 == 0 && end - at >= 8) {
      const int before = std::popcount(bits_[at / 8]);
      bits_[at / 8] = written ? 0xFF : 0;
      unwritten_ += before - (written ? 8 : 0);
      at += 8;
      continue;
    }
    const auto bit = static_cast<uint8_t>(1u << (at % 8));
    const bool was = (bits_[at / 8] & bit) != 0;
    if (was != written) {
      bits_[at / 8] ^= bit;
      unwritten_ += written ? -1 : 1;
    }
    ++at;
  }
}

int64_t WrittenBytes::first_unwritten(int64_t offset, int64_t bytes) const {
  if (unwritten_ == 0) return -1;
  for (int64_t at = offset; at < offset + bytes; ++at) {
    if (at % 8 == 0 && offset + bytes - at >= 8 && bits_[at / 8] == 0xFF) {
      at += 7;
    } else if ((bits_[at / 8] & (1u << (at % 8))) == 0) {
      return at;
    }
  }
  return -1;
}

// ---- device memory --------------------------------------------------------------------------------------------------

Allocation::Allocation(int its_device, int64_t its_number, std::byte* its_begin, int64_t its_bytes)
    : device(its_device),
      number(its_number),
      begin(its_begin),
      bytes(its_bytes),
      written(its_bytes),
      shadow(its_bytes) {}

void Allocation::forget_bytes() {
  std::destroy_at(&written);
  std::construct_at(&written, 0);
  std::destroy_at(&shadow);
  std::construct_at(&shadow, 0);
}

std::string Allocation::description() const {
  const std::string where = device == kPinned ? "pinned host memory" : fmt::format("device {}", device);
  return fmt::format("allocation {} ({} bytes, {}{}{})", number, bytes, where, label.empty() ? "" : ", ", label);
}

DeviceMemory::DeviceMemory()
    : begin_(static_cast<std::byte*>(reserve(kAllBytes, PROT_NONE))),
      chunks_(static_cast<uint32_t*>(
          reserve(kAllBytes / kChunkBytes * static_cast<int64_t>(sizeof(uint32_t)), PROT_READ | PROT_WRITE))) {}

DeviceMemory::~DeviceMemory() {
  munmap(begin_, kAllBytes);
  munmap(chunks_, kAllBytes / kChunkBytes * sizeof(uint32_t));
}

Allocation* DeviceMemory::allocate(int device, int64_t bytes, int64_t limit_bytes) {
  if (bytes > limit_bytes - used_bytes_[device]) return nullptr;
  // The first chunk begins with a gap, which also makes the address a multiple of 256 and of nothing larger, as
  // cudaMalloc promises no more. A gap of at least as much follows the last byte.
  constexpr int64_t kGapBytes = 256;
  constexpr int64_t kPageBytes = 4096;
  const int64_t chunk_count = (bytes + 2 * kGapBytes + kChunkBytes - 1) / kChunkBytes;
  const int64_t in_region = free_chunks(device, chunk_count);
  if (in_region < 0) return nullptr;
  const int64_t first_chunk = device * (kRegionBytes / kChunkBytes) + in_region;
  next_chunk_[device] = in_region + chunk_count;
  std::byte* const chunk = begin_ + first_chunk * kChunkBytes;
  require(mprotect(chunk, static_cast<size_t>(chunk_count * kChunkBytes), PROT_READ | PROT_WRITE) == 0,
          "emulation: no memory for an allocation");
  // Only what holds the bytes and gaps: small allocations are to cost a page, not a chunk.
  const int64_t pages_bytes = (bytes + 2 * kGapBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::memset(chunk, kPoison, static_cast<size_t>(bytes > kFilledBytes ? (1 << 20) : pages_bytes));
  Allocation& allocation =
      allocations_.emplace_back(device, static_cast<int64_t>(allocations_.size()) + 1, chunk + kGapBytes, bytes);
  std::fill_n(chunks_ + first_chunk, chunk_count, static_cast<uint32_t>(allocations_.size()));
  used_bytes_[device] += bytes;
  return &allocation;
}

int64_t DeviceMemory::free_chunks(int device, int64_t count) const {
  constexpr int64_t kChunks = kRegionBytes / kChunkBytes;
  const uint32_t* const owners = chunks_ + device * kChunks;
  for (const bool from_the_begin : {false, true}) {
    int64_t first = from_the_begin ? 0 : next_chunk_[device];
    int64_t end = first;
    while (end < kChunks && end - first < count) {
      const uint32_t owner = owners[end++];
      if (owner != 0 && !allocations_[owner - 1].freed) first = end;
    }
    if (end - first == count) return first;
  }
  return -1;
}

bool DeviceMemory::free(void* begin) {
  if (!covers(begin)) return false;
  Allocation* const allocation = find(begin);
  if (allocation == nullptr || allocation->begin != begin || allocation->freed) return false;
  allocation->freed = true;
  used_bytes_[allocation->device] -= allocation->bytes;
  // The whole chunks: nobody else lives there. The pages go back to the system.
  std::byte* const chunk = begin_ + (allocation->begin - begin_) / kChunkBytes * kChunkBytes;
  const int64_t bytes = (allocation->begin + allocation->bytes - chunk + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
  madvise(chunk, static_cast<size_t>(bytes), MADV_DONTNEED);
  mprotect(chunk, static_cast<size_t>(bytes), PROT_NONE);
  allocation->forget_bytes();
  return true;
}

const Allocation* DeviceMemory::nearest(const void* address) const {
  return nearest_of(allocations_, address);
}

Allocation* DeviceMemory::find(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const uint32_t index = chunks_[(at - begin_) / kChunkBytes];
  if (index == 0) return nullptr;
  auto& allocation = const_cast<Allocation&>(allocations_[index - 1]);
  return at >= allocation.begin && at < allocation.begin + allocation.bytes ? &allocation : nullptr;
}

int DeviceMemory::device_of(const void* address) const {
  return static_cast<int>((static_cast<const std::byte*>(address) - begin_) / kRegionBytes);
}

// ---- shared memory --------------------------------------------------------------------------------------------------

SharedMemory::SharedMemory()
    : begin_(static_cast<std::byte*>(reserve(kBytes, PROT_READ | PROT_WRITE))), written_(kBytes), shadow_(kBytes) {
  used_ = kBytes;  // never filled so far
}

SharedMemory::~SharedMemory() {
  munmap(begin_, kBytes);
}

void SharedMemory::begin_block(int64_t dynamic_bytes) {
  // The shadow needs no clearing: accesses of other blocks are known to all.
  std::memset(begin_, kPoison, static_cast<size_t>(used_));
  written_.set(0, used_, false);
  used_ = 0;
  variables_.clear();
  declare(nullptr, dynamic_bytes, "dynamic shared memory");
}

std::byte* SharedMemory::variable(const void* key, int64_t bytes, std::string_view name) {
  for (const Variable& variable : variables_) {
    if (variable.key == key) return variable.begin;
  }
  return declare(key, bytes, name);
}

std::byte* SharedMemory::declare(const void* key, int64_t bytes, std::string_view name) {
  constexpr int64_t kAlignment = 128;  // so that bank conflicts do not depend on what was declared before
  const int64_t begin = (used_ + kGapBytes + kAlignment - 1) / kAlignment * kAlignment;
  if (begin + bytes + kGapBytes > kBytes) return nullptr;
  used_ = begin + bytes;
  variables_.push_back({key, name, begin_ + begin, bytes});
  return begin_ + begin;
}

const SharedMemory::Variable* SharedMemory::find(const void* address) const {
  for (const Variable& variable : variables_) {
    if (address >= variable.begin && address < variable.begin + variable.bytes) return &variable;
  }
  return nullptr;
}

const SharedMemory::Variable* SharedMemory::nearest(const void* address) const {
  return nearest_of(variables_, address);
}

}  // namespace shardscope::emulation
