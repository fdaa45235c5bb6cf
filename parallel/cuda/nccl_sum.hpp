// Sums by NCCL, in memory of any kind or in symmetric windows.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "parallel/communicator.hpp"
#include "parallel/cuda/device_sum.hpp"
#include "parallel/cuda/nccl_session.hpp"

namespace shardscope::parallel {

class NcclSum final : public DeviceSum {
 public:
  /// symmetric: make_summed gives memory in symmetric windows (NCCL 2.27 and later).
  NcclSum(std::shared_ptr<NcclSession> session, DeviceStream stream, bool symmetric)
      : session_(std::move(session)), stream_(std::move(stream)), symmetric_(symmetric) {}

  std::string_view name() const override { return symmetric_ ? "nccl-symmetric" : "nccl"; }
  int64_t most_bytes() const override { return std::numeric_limits<int64_t>::max(); }
  void all_reduce(void* data, int64_t count, kernels::DType dtype) override;
  /// Throws SystemError where there is no such memory.
  std::unique_ptr<kernels::ActivationBuffer> make_summed(int64_t rows, int64_t columns, kernels::DType dtype) override;
  void check() override { session_->check(); }
  void abort() noexcept override { session_->abort(); }

 private:
  std::shared_ptr<NcclSession> session_;
  DeviceStream stream_;
  bool symmetric_;
};

/// Starts NCCL in the group of `host`. Collective.
std::shared_ptr<NcclSession> start_nccl(World& world, Communicator& host, int device);

/// Why this group has no symmetric windows, the same on all ranks; "" if it has. Collective: tries.
std::string why_not_symmetric(NcclSession& session, Communicator& host);

}  // namespace shardscope::parallel
