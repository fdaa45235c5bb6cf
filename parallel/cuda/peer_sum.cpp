#include "parallel/cuda/peer_sum.hpp"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/exchange_candidates.hpp"
#include "kernels/cuda/resident.hpp"

namespace shardscope::parallel {
namespace {

constexpr uintptr_t kWordBytes = 4;  // of data, as the kernels take them

int64_t rounded(int64_t bytes) {
  constexpr int64_t kUnit = 16;  // that two-shot deals to ranks
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

bool is_summed(kernels::DType dtype) {
  return dtype == kernels::DType::kF32 || dtype == kernels::DType::kF16 || dtype == kernels::DType::kBF16;
}

bool aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kWordBytes == 0;
}

/// Whether the kernel with the norm takes such rows.
bool suits(const kernels::Activations& x, const kernels::Activations& like) {
  const int64_t stride_bytes = x.stride * kernels::facts(x.dtype).block_bytes;
  return x.dtype == like.dtype && x.rows == like.rows && x.columns == like.columns && aligned(x.data) &&
         (x.rows <= 1 || stride_bytes % static_cast<int64_t>(kWordBytes) == 0);
}

/// Of the smallest device of the group: all ranks have to agree on what a kernel takes.
int fewest_multiprocessors(Communicator& host, int device) {
  int mine = 0;
  cuda::check_cuda(cudaDeviceGetAttribute(&mine, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute",
                   {.device = device, .rank = host.rank()});
  std::vector<int> all(static_cast<size_t>(host.size()));
  host.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  return *std::min_element(all.begin(), all.end());
}

}  // namespace

int64_t PeerSum::most_bytes() const {
  const cuda::PeerCapacity& capacity = group_->rank().capacity;
  return shots_ == cuda::Shots::kOne ? capacity.one_shot_bytes : capacity.two_shot_bytes;
}

void PeerSum::all_reduce(void* data, int64_t count, kernels::DType dtype) {
  require(is_summed(dtype) && count * kernels::facts(dtype).block_bytes <= most_bytes(),
          "a sum by peer access of too many bytes, or of elements that have no sum");
  require(aligned(data), "a sum by peer access of misaligned data");
  if (count == 0) return;
  group_->begin({.operation = shots_ == cuda::Shots::kOne ? "one-shot all-reduce" : "two-shot all-reduce",
                 .count = count,
                 .dtype = dtype});
  const cudaStream_t stream = stream_.for_kernels();
  group_->enqueued(cuda::all_reduce(group_->rank(), shots_,
                                    {.dtype = dtype,
                                     .count = count,
                                     .x = data,
                                     .out = data,
                                     .stamps = stream_.stamps_of_operation(),
                                     .programmatic = stream_.overlaps()},
                                    stream));
}

bool PeerSum::all_reduce_norm(const kernels::NormedInput& input) {
  require(input.addend != nullptr && input.weight != nullptr, "a norm behind a sum of nothing");
  const kernels::Activations& x = *input.addend;
  if (!is_summed(x.dtype) || x.rows == 0 || x.columns == 0) return false;
  const auto rows = {x, input.residual, input.sum, input.normed};
  if (!std::all_of(rows.begin(), rows.end(), [&](const kernels::Activations& its) { return suits(its, x); })) {
    return false;
  }
  constexpr auto kWord = static_cast<int64_t>(kWordBytes);
  const int64_t row_words = (x.columns * kernels::facts(x.dtype).block_bytes + kWord - 1) / kWord;
  if (x.rows * row_words * kWord > most_bytes() ||
      x.columns > cuda::all_reduce_norm_columns(x.dtype, multiprocessors_)) {
    return false;
  }
  require(input.weight->size() == x.columns, "a norm whose weight has another size");
  group_->begin(
      {.operation = shots_ == cuda::Shots::kOne ? "one-shot all-reduce with norm" : "two-shot all-reduce with norm",
       .count = x.rows * x.columns,
       .dtype = x.dtype});
  const cudaStream_t stream = stream_.for_kernels();
  group_->enqueued(cuda::all_reduce_norm(group_->rank(), shots_,
                                         {.dtype = x.dtype,
                                          .rows = x.rows,
                                          .columns = x.columns,
                                          .x = x.data,
                                          .x_stride = x.stride,
                                          .residual = input.residual.data,
                                          .residual_stride = input.residual.stride,
                                          .weight = cuda::own<const cuda::CudaVector>(*input.weight).data(),
                                          .epsilon = input.epsilon,
                                          .sum = input.sum.data,
                                          .sum_stride = input.sum.stride,
                                          .normed = input.normed.data,
                                          .normed_stride = input.normed.stride,
                                          .stamps = stream_.stamps_of_operation(),
                                          .programmatic = stream_.overlaps()},
                                         stream));
  return true;
}

bool PeerSum::exchange_candidates(cuda::CandidateOut* best, int64_t rows) {
  if (rows * static_cast<int64_t>(sizeof(cuda::CandidateOut)) > group_->rank().capacity.one_shot_bytes) return false;
  if (rows == 0) return true;
  group_->begin({.operation = "exchange of candidates", .count = 2 * rows, .dtype = kernels::DType::kF32});
  const cudaStream_t stream = stream_.for_kernels();
  group_->enqueued(cuda::exchange_candidates(
      group_->rank(),
      {.rows = rows, .best = best, .stamps = stream_.stamps_of_operation(), .programmatic = stream_.overlaps()},
      stream));
  return true;
}

PeerSums make_peer_sums(World& world, Communicator& host, const DeviceStream& stream, const PeerSumOptions& options) {
  auto group = std::make_shared<PeerGroup>(
      world, host,
      PeerGroup::Options{.device = stream.device,
                         .capacity = {.one_shot_bytes = rounded(options.capacity.one_shot_bytes),
                                      .two_shot_bytes = rounded(options.capacity.two_shot_bytes)},
                         .shared_devices = options.shared_devices,
                         .proof_wait = options.proof_wait,
                         .keep_times = options.keep_times});
  PeerSums sums{.one_shot = nullptr, .two_shot = nullptr, .why_not = group->why_not()};
  if (sums.why_not.empty()) {
    const int multiprocessors = fewest_multiprocessors(host, stream.device);
    sums.one_shot = std::make_unique<PeerSum>(group, stream, cuda::Shots::kOne, multiprocessors);
    sums.two_shot = std::make_unique<PeerSum>(group, stream, cuda::Shots::kTwo, multiprocessors);
  }
  return sums;
}

}  // namespace shardscope::parallel
