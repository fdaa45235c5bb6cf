// What the ranks of a tensor-parallel group say to each other. Implementations: shm (one host, shared memory window),
// mpi (any hosts), a single rank's no-op, and for GPUs NCCL and our own kernels (cuda/). Decode-loop calls allocate
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.hpp"
#include "parallel/world.hpp"

namespace shardscope::parallel {

/// Which way of summing serves which messages, and what was measured to decide it.
struct SumChoices {
  struct Choice {
    int64_t from_bytes = 0;  // up to the next choice's
    std::string way;
  };
  struct Measured {
    int64_t bytes = 0;
    std::string way;
    double time_us = 0;  // the median over rounds: on devices of the slowest rank's, on hosts of rank 0's
  };
  bool graphs = false;  // measured in captured graphs
  std::vector<Choice> choices;
  std::vector<Measured> measured;     // empty: nothing was to decide
  std::vector<std::string> left_out;  // ways that this group cannot use: "one-shot: why"
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string_view name() const = 0;  // "none", "shm", "mpi", "nccl", …, "auto" where messages' sizes decide
  virtual int rank() const = 0;               // within the group
  virtual int size() const = 0;

  /// Sum over the group, in place, fp32, added in rank order; bitwise the same on every rank. Any count, 0 included.
  /// Throws PeerFailure or SystemError as World::wait does.
  virtual void all_reduce(std::span<float> data) = 0;

  /// Sum over the group of activations, in place, where the backend keeps them: on a GPU enqueued on its stream, in a
  /// captured step too. Their rows' padding is summed with them. Here: as above, for activations in the host's memory.
  virtual void all_reduce(const kernels::Activations& data);

  /// Sum over the group of input.addend. Where one kernel does that and the norm, input.sum and input.normed are filled
  /// in too, and input.ready is set.
  virtual void all_reduce(kernels::NormedInput& input) { all_reduce(*input.addend); }

  /// Memory for activations that all_reduce will sum: the backend's, or of a kind in which that is faster. The same
  /// calls on all ranks; must not outlive this.
  virtual std::unique_ptr<kernels::ActivationBuffer> make_summed(kernels::Backend& backend, int64_t rows,
                                                                 int64_t columns) {
    return backend.make_activations(rows, columns);
  }

  /// Decided before the first sum; the same on all ranks.
  virtual SumChoices sum_choices() const { return {.choices = {{0, std::string(name())}}}; }

  /// all [size * mine.size()] = every rank's `mine`, rank by rank; equal sizes on all ranks.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual void barrier() = 0;
};

/// kAuto: measured. The last two: for hosts' memory; those between: for devices, where hosts use the fastest.
enum class CommunicatorKind : uint8_t { kAuto, kNccl, kNcclSymmetric, kOneShot, kTwoShot, kMpi, kShm };

/// As --allreduce has it.
std::string_view communicator_name(CommunicatorKind kind);
bool sums_on_devices(CommunicatorKind kind);  // kAuto: not alone
bool sums_on_hosts(CommunicatorKind kind);    // the same

struct CommunicatorOptions;

/// Makes a communicator whose sums of activations run on the devices of a backend, from one for everything else.
using OnDevice = std::function<std::unique_ptr<Communicator>(World& world, std::unique_ptr<Communicator> host,
                                                             const CommunicatorOptions& options)>;

struct CommunicatorOptions {
  int group_size = 1;
  CommunicatorKind kind = CommunicatorKind::kAuto;
  int64_t max_floats = 0;              // the largest all_reduce or all_gather, in 4-byte units
  bool oversubscribed = false;         // more busy threads than cores on the host: sleep early instead of spinning
  OnDevice on_device;                  // for groups of more than one rank; empty: activations are in the host's memory
  std::vector<int64_t> message_bytes;  // of the sums of activations that will be made: what auto measures on devices
  bool shared_devices = false;         // ranks may share a device
  int first_rank = 0;                  // members are the world's ranks first_rank .. first_rank + group_size - 1
};

/// Collective over the members only; other ranks must not call it, but may make a group of their own. `auto`: where all
/// members share a host, measures both at a ladder of sizes up to max_floats in well under a second, their first
/// decides per size and tells the others; otherwise mpi.
std::unique_ptr<Communicator> make_communicator(World& world, const CommunicatorOptions& options);

}  // namespace shardscope::parallel
