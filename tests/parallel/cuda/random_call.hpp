// A collective call whose result is known: what is summed, its memory on this rank, and what it must give.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/owners.hpp"
#include "kernels/cuda/resident.hpp"
#include "parallel/cuda/device_sum.hpp"
#include "parallel/cuda/sum_timer.hpp"

namespace shardscope::parallel {

using cuda::CandidateOut;
using cuda::check_cuda;
using kernels::DType;

enum class Kind : uint8_t { kSum, kNorm, kCandidates };

/// One call, the same on all ranks.
struct Plan {
  Kind kind = Kind::kSum;
  DeviceSum* way = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t salt = 0;

  int64_t count() const { return rows * columns; }
  int64_t bytes() const { return count() * kernels::facts(dtype).block_bytes; }
  std::string text() const {
    const char* const kinds[] = {"sum", "norm", "candidates"};
    return fmt::format("{} {} of {} x {} {}", way->name(), kinds[static_cast<size_t>(kind)], rows, columns,
                       kernels::facts(dtype).name);
  }
};

/// A rank's element: sums over 8 ranks and a residual stay far below 256, to where bf16 holds all whole numbers.
inline float element(const Plan& plan, int rank, int64_t i) {
  return static_cast<float>((i * 3 + int64_t{rank} * 5 + plan.salt) % 17 - 8);
}
inline float residual(const Plan& plan, int64_t i) {
  return static_cast<float>((i + plan.salt) % 5);
}
inline CandidateOut candidate(const Plan& plan, int rank, int64_t row) {
  return {static_cast<float>((row * 3 + int64_t{rank} * 5 + plan.salt) % 11), static_cast<int32_t>(100 * row + rank)};
}

template <class Value>
std::vector<std::byte> stored(const Plan& plan, const Value& value) {
  std::vector<float> values;
  for (int64_t i = 0; i < plan.count(); ++i) values.push_back(value(i));
  std::vector<std::byte> bytes(static_cast<size_t>(plan.bytes()));
  kernels::convert_row(values, plan.dtype, bytes);
  return bytes;
}

/// Device memory that is filled from pinned memory on a stream, as often as wanted.
class Filled {
 public:
  Filled(std::vector<std::byte> bytes, std::unique_ptr<kernels::ActivationBuffer> own = {})
      : pinned_(std::ssize(bytes), "a test", {}),
        own_(std::move(own)),
        plain_(own_ ? 0 : std::ssize(bytes), "a test", {}) {
    std::copy(bytes.begin(), bytes.end(), pinned_.data());
    bytes_ = bytes.size();
  }
  void* data() const { return own_ ? own_->view().data : plain_.data(); }
  void fill(cudaStream_t stream) const {
    check_cuda(cudaMemcpyAsync(data(), pinned_.data(), bytes_, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
  }
  std::vector<std::byte> contents() const {
    std::vector<std::byte> bytes(bytes_);
    check_cuda(cudaMemcpy(bytes.data(), data(), bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return bytes;
  }

 private:
  cuda::PinnedBuffer pinned_;
  std::unique_ptr<kernels::ActivationBuffer> own_;
  cuda::DeviceBuffer plain_;
  size_t bytes_ = 0;
};

/// A call with its memory on this rank. Made by all ranks in the same order.
class Call {
 public:
  Call(const Plan& plan, int rank, int ranks) : plan_(plan), ranks_(ranks) {
    if (plan.kind == Kind::kCandidates) {
      std::vector<CandidateOut> best;
      for (int64_t row = 0; row < plan.rows; ++row) best.push_back(candidate(plan, rank, row));
      const auto bytes = std::as_bytes(std::span(best));
      x_ = std::make_unique<Filled>(std::vector<std::byte>(bytes.begin(), bytes.end()));
      return;
    }
    x_ = std::make_unique<Filled>(stored(plan, [&](int64_t i) { return element(plan, rank, i); }),
                                  plan.way->make_summed(1, plan.count(), plan.dtype));
    if (plan.kind != Kind::kNorm) return;
    residual_ = std::make_unique<Filled>(stored(plan, [&](int64_t i) { return residual(plan, i); }));
    normed_ = std::make_unique<Filled>(stored(plan, [&](int64_t) { return 0.0F; }));
    const std::vector<float> weights(static_cast<size_t>(plan.columns), 1.5F);
    const auto bytes = plan.columns * static_cast<int64_t>(sizeof(float));
    cuda::DeviceBuffer memory(bytes, "a test", {});
    check_cuda(cudaMemcpy(memory.data(), weights.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    weight_ = std::make_unique<cuda::CudaVector>(
        cuda::WeightPlane(std::make_shared<const cuda::DeviceBuffer>(std::move(memory)), 0, bytes), plan.columns);
  }

  void fill(cudaStream_t stream) const {
    for (const std::unique_ptr<Filled>* const memory : {&x_, &residual_, &normed_}) {
      if (*memory) (*memory)->fill(stream);
    }
  }
  void enqueue() const {
    switch (plan_.kind) {
      case Kind::kSum:
        enqueue_sum(*plan_.way, {x_->data(), plan_.count(), plan_.dtype});
        return;
      case Kind::kNorm: {
        const kernels::Activations x = rows(*x_);
        require(plan_.way->all_reduce_norm({.residual = rows(*residual_),
                                            .addend = &x,
                                            .weight = weight_.get(),
                                            .epsilon = 1e-5F,
                                            .sum = rows(*residual_),
                                            .normed = rows(*normed_)}),
                fmt::format("{}: refused", plan_.text()));
        return;
      }
      case Kind::kCandidates:
        require(plan_.way->exchange_candidates(static_cast<CandidateOut*>(x_->data()), plan_.rows),
                fmt::format("{}: refused", plan_.text()));
        return;
    }
  }

  /// Throws BugError unless the results are exact. Gives the results' bytes.
  std::vector<std::byte> checked() const {
    const std::vector<std::byte> bytes = (plan_.kind == Kind::kNorm ? residual_ : x_)->contents();
    const std::vector<std::byte> right = plan_.kind == Kind::kCandidates ? right_candidates() : right_sums();
    for (size_t i = 0; i < bytes.size(); ++i) {
      require(bytes[i] == right[i], fmt::format("{}: byte {} of the result is wrong", plan_.text(), i));
    }
    return plan_.kind == Kind::kNorm ? normed_->contents() : bytes;
  }

 private:
  kernels::Activations rows(const Filled& memory) const {
    return {static_cast<std::byte*>(memory.data()), plan_.rows, plan_.columns, plan_.columns, plan_.dtype};
  }
  std::vector<std::byte> right_sums() const {
    return stored(plan_, [&](int64_t i) {
      float sum = plan_.kind == Kind::kNorm ? residual(plan_, i) : 0.0F;
      for (int rank = 0; rank < ranks_; ++rank) sum += element(plan_, rank, i);
      return sum;
    });
  }
  std::vector<std::byte> right_candidates() const {
    std::vector<CandidateOut> best;
    for (int64_t row = 0; row < plan_.rows; ++row) {
      best.push_back(candidate(plan_, 0, row));  // a tie stays with the smaller id, the first rank's
      for (int rank = 1; rank < ranks_; ++rank) {
        const CandidateOut other = candidate(plan_, rank, row);
        if (other.logit > best.back().logit) best.back() = other;
      }
    }
    const auto bytes = std::as_bytes(std::span(best));
    return {bytes.begin(), bytes.end()};
  }

  Plan plan_;
  int ranks_;
  std::unique_ptr<Filled> x_, residual_, normed_;
  std::unique_ptr<cuda::CudaVector> weight_;
};

}  // namespace shardscope::parallel
