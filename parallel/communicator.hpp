// What the ranks of a tensor-parallel group say to each other. Implementations: shm (one host, shared memory window),
// mpi (any hosts), a single rank's no-op, and for GPUs NCCL (cuda/). Decode-loop calls allocate nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "kernels/backend.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;  // "none", "shm", "mpi"
  virtual int rank() const = 0;               // within the group
  virtual int size() const = 0;

  /// Sum over the group, in place, fp32, added in rank order; bitwise the same on every rank. Any count, 0 included.
  /// Throws PeerFailure or SystemError as World::wait does.
  virtual void all_reduce(std::span<float> data) = 0;

  /// Sum over the group of activations, in place, where the backend keeps them: on a GPU enqueued on its stream, in a
  /// captured step too. Their rows' padding is summed with them. Here: as above, for activations in the host's memory.
  virtual void all_reduce(const kernels::Activations& data);

  /// all [size * mine.size()] = every rank's `mine`, rank by rank; equal sizes on all ranks.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual void barrier() = 0;
};

enum class CommunicatorKind : uint8_t { kAuto, kMpi, kShm };

/// Makes a communicator whose sums of activations run on the devices of a backend, from one for everything else.
using OnDevice = std::function<std::unique_ptr<Communicator>(World& world, std::unique_ptr<Communicator> host)>;

struct CommunicatorOptions {
  int group_size = 1;  // ranks 0 .. group_size - 1 of the world
  CommunicatorKind kind = CommunicatorKind::kAuto;
  int64_t max_floats = 0;       // the largest all_reduce or all_gather, in 4-byte units
  bool oversubscribed = false;  // more busy threads than cores on the host: sleep early instead of spinning
  OnDevice on_device;           // for groups of more than one rank; empty: activations are in the host's memory
};

/// Collective over the members only (world ranks below group_size); other ranks must not call it. `auto`: where all
/// members share a host, measures both at a ladder of sizes up to max_floats in well under a second, rank 0 decides per
/// size and tells the others; otherwise mpi.
std::unique_ptr<Communicator> make_communicator(World& world, const CommunicatorOptions& options);

}  // namespace shardscope::parallel
