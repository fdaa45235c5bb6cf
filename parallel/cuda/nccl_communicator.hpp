// Collectives of a tensor-parallel group with devices: sums on the devices by NCCL, enqueued in the stream that
// computes; what hosts say to each other by another communicator.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string_view>

#include "kernels/cuda/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cuda/nccl_session.hpp"

namespace shardscope::parallel {

/// Where sums are enqueued.
struct NcclStream {
  std::function<cudaStream_t()> lend;  // asked for each sum
  int device = 0;                      // its; current in this thread
};

class NcclCommunicator final : public Communicator {
 public:
  /// Collective over the group, which is that of `host`. Proves that sums arrive before it returns. Has to end before
  /// `world` and the stream, and after graphs in which all_reduce was captured. Throws PeerFailure or SystemError
  /// within the world's timeout.
  NcclCommunicator(World& world, std::unique_ptr<Communicator> host, NcclStream stream);
  /// The same on the backend's stream; and the backend checks the communicator while it waits for its device.
  NcclCommunicator(World& world, std::unique_ptr<Communicator> host, cuda::CudaBackend& backend);
  ~NcclCommunicator() override;

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  /// Of numbers of the host: by the host's communicator.
  void all_reduce(std::span<float> data) override { host_->all_reduce(data); }
  /// Enqueued on the stream, which may be captured; does not wait for the sum. data: device memory, fp32, fp16 or bf16,
  /// the same shape on all ranks; elements between rows are summed, too.
  void all_reduce(const kernels::Activations& data) override;

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { host_->all_gather(mine, all); }
  void broadcast(std::span<std::byte> data, int root) override { host_->broadcast(data, root); }
  void barrier() override { host_->barrier(); }

  /// Throws PeerFailure or SystemError if a sum cannot end any more. For whoever waits for the stream: nothing else
  /// tells of it.
  void check() { session_->check(); }

  /// Ends what is in the stream without a result, for whoever gives up waiting for it by an exception of its own. What
  /// check and wait throw, and the destructor while the stack unwinds, have done so.
  void abort() noexcept { session_->abort(); }

  /// Until `ready`, as World::wait, with `check` between polls: how to wait for the stream.
  void wait(const std::function<bool()>& ready, std::string_view what) { session_->wait(ready, what); }

 private:
  void prove();

  std::unique_ptr<Communicator> host_;
  NcclStream stream_;
  cuda::CudaBackend* backend_ = nullptr;  // that checks
  std::unique_ptr<NcclSession> session_;
};

}  // namespace shardscope::parallel
