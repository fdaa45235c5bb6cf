#include "tests/emulation/shadow.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "kernels/base/error.hpp"

namespace shardscope::emulation {
namespace {

constexpr int64_t kCellBytes = 16;

bool compatible_atomics(const Access& a, const Access& b) {
  return a.atomic && b.atomic && (a.device == b.device || (a.system && b.system));
}

bool same_thread(const Access& a, const Access& b) {
  return a.block == b.block && a.thread == b.thread;
}

}  // namespace

int32_t packed_place(const void* return_address) {
  const intptr_t distance = static_cast<const char*>(return_address) - reinterpret_cast<const char*>(&packed_place);
  return std::in_range<int32_t>(distance) ? static_cast<int32_t>(distance) : 0;
}

const void* unpacked_place(int32_t place) {
  return reinterpret_cast<const char*>(&packed_place) + place;
}

/// The four cells of each cell that was split, for all shadows.
class Shadow::Parts {
 public:
  Cell* of(Cell& cell) {
    if (cell.parts == 0) {
      require(used_ < kMost, "emulation: too many small accesses for the shadow memory");
      for (Cell& part : pool_[used_]) {
        part = cell;
        part.parts = 0;
      }
      cell.parts = ++used_;
    }
    return pool_[cell.parts - 1];
  }
  void forget() {
    madvise(pool_, used_ * sizeof(*pool_), MADV_DONTNEED);
    used_ = 0;
  }

  static Parts& all() {
    static auto& parts = *new Parts;  // never destroyed: the worker may run until the process ends
    return parts;
  }

 private:
  static constexpr int64_t kMost = int64_t{1} << 28;
  Zeroed zeroed_{kMost * static_cast<int64_t>(sizeof(Cell)) * 4};
  Cell (*const pool_)[4] = zeroed_.as<Cell[4]>();
  uint32_t used_ = 0;
};

void Shadow::forget_parts() {
  Parts::all().forget();
}

Shadow::Shadow(int64_t bytes)
    : zeroed_((bytes + kCellBytes - 1) / kCellBytes * static_cast<int64_t>(sizeof(Cell)) + 1),
      cells_(zeroed_.as<Cell>()) {}

bool Shadow::note(int64_t offset, int64_t bytes, bool write, const Access& access, const Observer& observer,
                  Race* race) {
  const int64_t end = offset + bytes;
  while (offset < end) {
    const int64_t cell = offset / kCellBytes;
    const int64_t cell_end = std::min(end, (cell + 1) * kCellBytes);
    if (note_cell(cells_[cell], kCellBytes, offset - cell * kCellBytes, cell_end - cell * kCellBytes, write, access,
                  observer, race)) {
      return true;
    }
    offset = cell_end;
  }
  return false;
}

bool Shadow::note_cell(Cell& cell, int64_t cell_bytes, int64_t begin, int64_t end, bool write, const Access& access,
                       const Observer& observer, Race* race) {
  if (cell.parts != 0 || end - begin < cell_bytes) {
    Cell* const parts = Parts::all().of(cell);
    const int64_t part_bytes = cell_bytes / 4;
    for (int64_t part = begin / part_bytes; part * part_bytes < end; ++part) {
      const int64_t part_begin = part * part_bytes;
      if (note_cell(parts[part], part_bytes, std::max(begin - part_begin, int64_t{0}),
                    std::min(end - part_begin, part_bytes), write, access, observer, race)) {
        return true;
      }
    }
    return false;
  }
  if (cell.conflict(write, access, observer, race)) return true;
  cell.keep(write, access, observer);
  return false;
}

bool Shadow::Cell::conflict(bool write, const Access& access, const Observer& observer, Race* race) const {
  const auto meets = [&](const Access& earlier) {
    if (earlier.block == 0 || compatible_atomics(earlier, access)) return false;
    // Loads of what is under way find bytes that nobody has written yet. What ends it is the thread's own.
    const bool under_way = earlier.pending && write && !(access.completes && same_thread(earlier, access));
    if (!under_way && observer.knows(earlier)) return false;
    *race = {earlier};
    return true;
  };
  if (meets(plain_write) || meets(atomic_writes[0]) || meets(atomic_writes[1])) return true;
  return write && (meets(plain_reads[0]) || meets(plain_reads[1]) || meets(atomic_read));
}

void Shadow::Cell::keep(bool write, const Access& access, const Observer& observer) {
  // The place of one that the new access knows or is of the same thread, of none, or of one of the same block if it can
  // be.
  const auto replace = [&](Access* first, int count) {
    int chosen = first[0].block == access.block ? 0 : count - 1;
    for (int i = 0; i < count; ++i) {
      const Access& earlier = first[i];
      if (earlier.block == 0 || same_thread(earlier, access) || (!earlier.pending && observer.knows(earlier))) {
        chosen = i;
        break;
      }
    }
    first[chosen] = access;
    first[chosen].wrote = write;
  };
  if (!write) {
    access.atomic ? replace(&atomic_read, 1) : replace(plain_reads, 2);
  } else if (access.atomic) {
    replace(atomic_writes, 2);
  } else {
    // Without a conflict it knows all that was here.
    const uint32_t its_parts = parts;
    *this = Cell{};
    parts = its_parts;
    replace(&plain_write, 1);
  }
}

}  // namespace shardscope::emulation
