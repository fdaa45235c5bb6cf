#include "tests/emulation/memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <memory>

#include "kernels/base/error.hpp"

namespace shardscope::emulation {
namespace {

constexpr int kPoison = 0xFF;
constexpr int64_t kFilledBytes = int64_t{1} << 30;

/// What an allocation takes of a device's memory: whole pieces.
int64_t rounded_up(int64_t bytes) {
  constexpr int64_t kPieceBytes = 512;
  return (bytes + kPieceBytes - 1) / kPieceBytes * kPieceBytes;
}

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

WrittenBytes::WrittenBytes(int64_t bytes) : unwritten_(bytes), zeroed_(bytes / 8 + 1), bits_(zeroed_.as<uint8_t>()) {}

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
  const std::string where = device == kPinned     ? "pinned host memory"
                            : device == kImported ? fmt::format("another process's, opened by device {}", importer)
                                                  : fmt::format("device {}", device);
  return fmt::format("allocation {} ({} bytes, {}{}{})", number, bytes, where, label.empty() ? "" : ", ", label);
}

DeviceMemory::DeviceMemory()
    : begin_(static_cast<std::byte*>(reserve(kAllBytes, PROT_NONE))),
      file_(memfd_create("emulated device memory", MFD_CLOEXEC)),
      chunks_(static_cast<uint32_t*>(
          reserve(kAllBytes / kChunkBytes * static_cast<int64_t>(sizeof(uint32_t)), PROT_READ | PROT_WRITE))) {
  require(file_ >= 0 && ftruncate(file_, kDeviceBytes) == 0, "emulation: no file for device memory");
  require(mmap(begin_, kDeviceBytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file_, 0) != MAP_FAILED,
          "emulation: no address space for device memory");
}

DeviceMemory::~DeviceMemory() {
  munmap(begin_, kAllBytes);
  munmap(chunks_, kAllBytes / kChunkBytes * sizeof(uint32_t));
  ::close(file_);
}

std::byte* DeviceMemory::take_chunks(int device, int64_t count) {
  const int64_t in_region = free_chunks(device, count);
  if (in_region < 0) return nullptr;
  next_chunk_[device] = in_region + count;
  return begin_ + device * kRegionBytes + in_region * kChunkBytes;
}

Allocation& DeviceMemory::add(int device, std::byte* chunk, int64_t chunks, std::byte* begin, int64_t bytes) {
  Allocation& allocation =
      allocations_.emplace_back(device, static_cast<int64_t>(allocations_.size()) + 1, begin, bytes);
  std::fill_n(chunks_ + (chunk - begin_) / kChunkBytes, chunks, static_cast<uint32_t>(allocations_.size()));
  used_bytes_[device] += rounded_up(bytes);
  if (device != kPinned) add_live(chunk, chunks * kChunkBytes);
  return allocation;
}

Allocation* DeviceMemory::allocate(int device, int64_t bytes, int64_t limit_bytes, int64_t alignment) {
  if (rounded_up(bytes) > limit_bytes - used_bytes_[device]) return nullptr;
  // The first chunk begins with a gap, which also makes the address a multiple of 256 and of nothing larger, as
  // cudaMalloc promises no more. A gap of at least as much follows the last byte.
  constexpr int64_t kGapBytes = 256;
  constexpr int64_t kPageBytes = 4096;
  const int64_t slack = std::max<int64_t>(alignment, 0);
  const int64_t chunk_count = (bytes + slack + 2 * kGapBytes + kChunkBytes - 1) / kChunkBytes;
  std::byte* const chunk = take_chunks(device, chunk_count);
  if (chunk == nullptr) return nullptr;
  std::byte* begin = chunk + kGapBytes;
  if (alignment > kGapBytes) {
    const auto address = reinterpret_cast<uintptr_t>(begin);
    begin += (static_cast<uintptr_t>(alignment) - address % static_cast<uintptr_t>(alignment)) %
             static_cast<uintptr_t>(alignment);
  }
  const bool accessible = device == kPinned || opened_ > 0;
  require(mprotect(chunk, static_cast<size_t>(chunk_count * kChunkBytes), PROT_READ | PROT_WRITE) == 0,
          "emulation: no memory for an allocation");
  // Only what holds the bytes and gaps: small allocations are to cost a page, not a chunk.
  const int64_t pages_bytes = (begin - chunk + bytes + kGapBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  std::memset(chunk, kPoison, static_cast<size_t>(bytes > kFilledBytes ? (1 << 20) : pages_bytes));
  Allocation& allocation = add(device, chunk, chunk_count, begin, bytes);
  if (!accessible) mprotect(chunk, static_cast<size_t>(chunk_count * kChunkBytes), PROT_NONE);
  return &allocation;
}

Allocation* DeviceMemory::map_foreign(int file, int64_t offset, int64_t bytes, bool private_copy) {
  const int64_t chunk_offset = offset / kChunkBytes * kChunkBytes;
  const int64_t chunk_count = (offset - chunk_offset + bytes + kChunkBytes - 1) / kChunkBytes;
  std::byte* const chunk = take_chunks(kImported, chunk_count);
  if (chunk == nullptr) return nullptr;
  void* const mapped = mmap(chunk, static_cast<size_t>(chunk_count * kChunkBytes), PROT_READ | PROT_WRITE,
                            (private_copy ? MAP_PRIVATE : MAP_SHARED) | MAP_FIXED | MAP_NORESERVE, file, chunk_offset);
  if (mapped == MAP_FAILED) return nullptr;
  Allocation& allocation = add(kImported, chunk, chunk_count, chunk + (offset - chunk_offset), bytes);
  if (opened_ == 0) mprotect(chunk, static_cast<size_t>(chunk_count * kChunkBytes), PROT_NONE);
  return &allocation;
}

void DeviceMemory::add_live(std::byte* chunks, int64_t bytes) {
  const auto after = live_.find(chunks + bytes);
  if (after != live_.end()) {
    bytes += after->second;
    live_.erase(after);
  }
  auto before = live_.lower_bound(chunks);
  if (before != live_.begin() && (--before)->first + before->second == chunks) {
    before->second += bytes;
  } else {
    live_.emplace(chunks, bytes);
  }
}

void DeviceMemory::remove_live(std::byte* chunks, int64_t bytes) {
  const auto whole = std::prev(live_.upper_bound(chunks));
  std::byte* const end = whole->first + whole->second;
  whole->second = chunks - whole->first;
  if (whole->second == 0) live_.erase(whole);
  if (end > chunks + bytes) live_.emplace(chunks + bytes, end - chunks - bytes);
}

void DeviceMemory::protect(bool accessible) const {
  for (const auto& [begin, bytes] : live_) {
    mprotect(begin, static_cast<size_t>(bytes), accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

void DeviceMemory::open() {
  if (opened_++ == 0) protect(true);
}

void DeviceMemory::close() {
  if (--opened_ == 0) protect(false);
}

void DeviceMemory::lose_writes(int device, bool losing) {
  const std::byte* const region = begin_ + device * kRegionBytes;
  for (const auto& [chunk, bytes] : live_) {
    if (chunk < region || chunk >= region + kRegionBytes) continue;
    require(mmap(chunk, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                 (losing ? MAP_PRIVATE : MAP_SHARED) | MAP_NORESERVE | MAP_FIXED, file_, chunk - begin_) != MAP_FAILED,
            "emulation: device memory cannot be mapped again");
  }
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
  used_bytes_[allocation->device] -= rounded_up(allocation->bytes);
  // The whole chunks: nobody else lives there. The pages go back to the system.
  const auto index = static_cast<uint32_t>(allocation->number);
  int64_t first = (allocation->begin - begin_) / kChunkBytes;
  while (first > 0 && chunks_[first - 1] == index) --first;
  int64_t last = (allocation->begin - begin_) / kChunkBytes;
  while (last + 1 < kAllBytes / kChunkBytes && chunks_[last + 1] == index) ++last;
  std::byte* const chunk = begin_ + first * kChunkBytes;
  const auto bytes = static_cast<size_t>((last + 1 - first) * kChunkBytes);
  if (allocation->device != kPinned) remove_live(chunk, static_cast<int64_t>(bytes));
  if (allocation->device == kImported) {
    mmap(chunk, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  } else {
    if (allocation->device == kPinned) {
      madvise(chunk, bytes, MADV_DONTNEED);
    } else {
      fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, chunk - begin_, static_cast<off_t>(bytes));
    }
    mprotect(chunk, bytes, PROT_NONE);
  }
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
    : begin_(static_cast<std::byte*>(reserve(kBytes, PROT_READ | PROT_WRITE))), written_(kBytes), shadow_(kBytes) {}

SharedMemory::~SharedMemory() {
  munmap(begin_, kBytes);
}

void SharedMemory::begin_block(int64_t dynamic_bytes) {
  // The shadow needs no clearing: accesses of other blocks are known to all.
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
  std::memset(begin_ + used_, kPoison, static_cast<size_t>(begin + bytes + kGapBytes - used_));
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
