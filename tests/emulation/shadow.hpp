// Shadow memory of the race check: for each piece of memory the accesses that a later one may conflict with. A record
// gives way only to one that conflicts with all that it conflicts with: hence plain and atomic ones apart. Of reads and
// of atomic writes that do not know each other, two are kept. Pieces are 16 bytes and are split into 4 and then 1 when
// an access is smaller, so that wide loads cost one look.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/emulation/order.hpp"
#include "tests/emulation/zeroed.hpp"

namespace shardscope::emulation {

/// One access, in 20 bytes.
struct Access {
  BlockId block = 0;  // 0: none
  uint32_t epoch = 0;
  uint32_t step = 0;
  int32_t place = 0;  // of the code, see packed_place
  uint16_t thread = 0;
  uint8_t device = 0;
  bool atomic : 1 = false;
  bool system : 1 = false;     // of an atomic: its scope is the system
  bool copy : 1 = false;       // by a copy or fill of the runtime
  bool wrote : 1 = false;      // the shadow's own: set for writes
  bool pending : 1 = false;    // by a cp.async that nobody has waited for: no store may meet it, whatever its order
  bool completes : 1 = false;  // the end of such a copy

  Stamp stamp() const { return {block, epoch, step, thread}; }
};
static_assert(sizeof(Access) == 20);

/// A return address as 32 bits, relative to this library; and back.
int32_t packed_place(const void* return_address);
const void* unpacked_place(int32_t place);

/// Who asks whether an earlier access is known.
class Observer {
 public:
  bool knows(const Access& earlier) const { return earlier.block < known_before_ || knows_later(earlier); }

 protected:
  ~Observer() = default;
  virtual bool knows_later(const Access& earlier) const = 0;

  BlockId known_before_ = 0;  // all blocks with smaller numbers are complete and
                              // known: the common case, at once
};

/// A pair of accesses without an order.
struct Race {
  Access earlier;
};

class Shadow {
 public:
  explicit Shadow(int64_t bytes);

  /// Gives back the memory of all split pieces. Only while no shadow lives that has any.
  static void forget_parts();

  /// Notes an access of [offset, offset + bytes). If an earlier one conflicts
  /// (one of the two writes, not both are atomics of a scope that holds both,
  /// and `observer` does not know the earlier one), returns true and tells
  /// which. An atomic update is a write.
  bool note(int64_t offset, int64_t bytes, bool write, const Access& access, const Observer& observer, Race* race);

 private:
  struct Cell {
    Access plain_write;
    Access atomic_writes[2];
    Access plain_reads[2];
    Access atomic_read;
    uint32_t parts = 0;  // 0: whole; else 1 + index of the four cells that it was split into
    uint32_t unused = 0;

    bool conflict(bool write, const Access& access, const Observer& observer, Race* race) const;
    void keep(bool write, const Access& access, const Observer& observer);
  };
  static_assert(sizeof(Cell) == 128);
  class Parts;

  bool note_cell(Cell& cell, int64_t cell_bytes, int64_t begin, int64_t end, bool write, const Access& access,
                 const Observer& observer, Race* race);

  Zeroed zeroed_;
  Cell* cells_;
};

}  // namespace shardscope::emulation
