#include "parallel/cuda/nccl_communicator.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/owners.hpp"
#include "parallel/cuda/nccl_check.hpp"
#include "parallel/cuda/proof.hpp"

namespace shardscope::parallel {
namespace {

ncclUniqueId shared_id(Communicator& host, const cuda::CallContext& context) {
  ncclUniqueId id{};
  if (host.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) throw_nccl_error(result, "ncclGetUniqueId", ncclGetLastError(nullptr), context);
  }
  host.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  return id;
}

}  // namespace

NcclCommunicator::NcclCommunicator(World& world, std::unique_ptr<Communicator> host, NcclStream stream)
    : host_(std::move(host)), stream_(std::move(stream)) {
  const NcclPlace place{.rank = host_->rank(), .size = host_->size(), .device = stream_.device};
  const ncclUniqueId id = shared_id(*host_, {.device = stream_.device, .rank = place.rank});
  session_ = std::make_unique<NcclSession>(world, place, id);
  prove();
}

NcclCommunicator::NcclCommunicator(World& world, std::unique_ptr<Communicator> host, cuda::CudaBackend& backend)
    : NcclCommunicator(world, std::move(host),
                       {.lend = [&backend] { return backend.lend_stream(); }, .device = backend.device()}) {
  backend.watch([this] { check(); }, [this] { abort(); });
  backend_ = &backend;
}

NcclCommunicator::~NcclCommunicator() {
  if (backend_ != nullptr) backend_->forget_watches();
}

void NcclCommunicator::all_reduce(const kernels::Activations& data) {
  if (data.rows == 0 || data.columns == 0) return;
  // Up to the last element of the last row: a range of columns does not reach the end of its buffer.
  session_->all_reduce(data.data, (data.rows - 1) * data.stride + data.columns, data.dtype, stream_.lend());
}

/// Peer access that claims to work and loses or corrupts what is written has been seen on real machines; better here
/// than as wrong tokens. Also makes NCCL's connections before anything is captured or measured.
void NcclCommunicator::prove() {
  const cuda::CallContext context{.detail = "proof of NCCL's sums", .device = stream_.device, .rank = rank()};
  const cudaStream_t stream = stream_.lend();
  constexpr size_t kBytes = kProofElements * sizeof(float);
  const cuda::DeviceBuffer device(kBytes, context.detail, context);
  const cuda::PinnedBuffer pinned(kBytes, context.detail, context);
  const cuda::Event done = cuda::make_event(context);

  const std::span<float> values(pinned.as<float>(), kProofElements);
  fill_proof(values, rank());
  cuda::check_cuda(cudaMemcpyAsync(device.data(), pinned.data(), kBytes, cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync", context);
  session_->all_reduce(device.data(), kProofElements, kernels::DType::kF32, stream);
  cuda::check_cuda(cudaMemcpyAsync(pinned.data(), device.data(), kBytes, cudaMemcpyDeviceToHost, stream),
                   "cudaMemcpyAsync", context);
  cuda::check_cuda(cudaEventRecord(done.get(), stream), "cudaEventRecord", context);
  cudaError_t state = cudaErrorNotReady;
  session_->wait(
      [&] {
        state = cudaEventQuery(done.get());
        return state != cudaErrorNotReady;
      },
      "proof of NCCL's sums");
  cuda::check_cuda(state, "cudaEventQuery", context);
  const std::string difference = wrong_sum(values, size());
  if (difference.empty()) return;
  throw SystemError(fmt::format("NCCL gives wrong sums: {}", difference), cuda::place_of(context),
                    "peer access between these devices may lose data: try NCCL_P2P_DISABLE=1, and see nvidia-smi topo "
                    "-p2p r");
}

}  // namespace shardscope::parallel
