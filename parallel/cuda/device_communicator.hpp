// Collectives of a tensor-parallel group with devices: sums on the devices, by NCCL or our own kernels on peers'
// memory, enqueued in the stream that computes; what hosts say to each other by another communicator.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "kernels/cuda/backend.hpp"
#include "parallel/communicator.hpp"
#include "parallel/cuda/device_ways.hpp"

namespace shardscope::parallel {

struct DeviceSumOptions {
  CommunicatorKind kind = CommunicatorKind::kAuto;  // kAuto or one for devices
  kernels::DType dtype = kernels::DType::kF32;      // of what will be summed
  std::vector<int64_t> message_bytes;               // of the sums that will be made: what kAuto measures
  bool shared_devices = false;                      // ranks may share a device
};

class DeviceCommunicator final : public Communicator {
 public:
  /// Collective over the group, which is that of `host`. Proves that sums arrive before it returns; kAuto measures the
  /// ways that there are, in captured graphs, for well under a second; all ranks choose the same. Has to end before
  /// `world` and the stream, and after graphs in which all_reduce was captured. Throws PeerFailure or SystemError
  /// within the world's timeout; UserError where the kind cannot be had here.
  DeviceCommunicator(World& world, std::unique_ptr<Communicator> host, DeviceStream stream,
                     const DeviceSumOptions& options);
  /// The same on the backend's stream. The backend checks the communicator while it waits for its device, and has the
  /// best candidates of a step exchanged where a kernel can.
  DeviceCommunicator(World& world, std::unique_ptr<Communicator> host, cuda::CudaBackend& backend,
                     const DeviceSumOptions& options);
  ~DeviceCommunicator() override;

  std::string_view name() const override;
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  /// Of numbers of the host: by the host's communicator.
  void all_reduce(std::span<float> data) override { host_->all_reduce(data); }
  /// Enqueued on the stream, which may be captured; does not wait for the sum. data: device memory, fp32, fp16 or bf16,
  /// the same shape on all ranks; elements between rows are summed, too.
  void all_reduce(const kernels::Activations& data) override;
  void all_reduce(kernels::NormedInput& input) override;
  std::unique_ptr<kernels::ActivationBuffer> make_summed(kernels::Backend& backend, int64_t rows,
                                                         int64_t columns) override;
  SumChoices sum_choices() const override { return choices_; }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { host_->all_gather(mine, all); }
  void broadcast(std::span<std::byte> data, int root) override { host_->broadcast(data, root); }
  void barrier() override { host_->barrier(); }

  /// As DeviceSum::check. For whoever waits for the stream: nothing else tells of it.
  void check() { ways_->check(); }
  /// Ends what is in the stream without a result, for whoever gives up waiting for it by an exception of its own. What
  /// check and wait throw, and the destructor while the stack unwinds, have done so.
  void abort() noexcept { ways_->abort(); }
  /// Until the event, with `check` between polls: how to wait for the stream.
  void wait(cudaEvent_t event, const char* what) { ways_->wait(event, what); }

 private:
  struct Choice {
    int64_t from_bytes = 0;
    DeviceSum* way = nullptr;
  };

  void choose(const DeviceSumOptions& options);
  void take(DeviceSum& way);
  void beyond_capacity();
  DeviceSum& way_for(int64_t bytes) const;

  std::unique_ptr<Communicator> host_;
  DeviceStream stream_;
  cuda::CudaBackend* backend_ = nullptr;  // that checks
  std::unique_ptr<DeviceWays> ways_;      // ends before the host's communicator
  std::vector<Choice> by_size_;           // ascending; the first from 0 bytes
  DeviceSum* exchanges_ = nullptr;        // candidates; null: none does
  DeviceSum* makes_summed_ = nullptr;
  SumChoices choices_;
};

}  // namespace shardscope::parallel
