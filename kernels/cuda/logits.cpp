#include "kernels/cuda/logits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "kernels/base/logit_rank.hpp"

namespace shardscope::cuda {

using kernels::Activations;
using kernels::Candidate;

static_assert(sizeof(CandidateOut) == sizeof(Candidate));

namespace {

constexpr auto kCandidateBytes = static_cast<int64_t>(sizeof(CandidateOut));

/// As candidates() ranks them.
int64_t top_of_row(std::span<const float> row, int64_t first_id, std::span<Candidate> out) {
  const auto count = std::min(row.size(), out.size());
  std::vector<int32_t> columns(row.size());
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<int32_t>(i);
  const auto better = [&](int32_t a, int32_t b) {
    const float left = logit_rank(row[static_cast<size_t>(a)]);
    const float right = logit_rank(row[static_cast<size_t>(b)]);
    return left > right || (left == right && a < b);
  };
  std::partial_sort(columns.begin(), columns.begin() + static_cast<std::ptrdiff_t>(count), columns.end(), better);
  for (size_t i = 0; i < count; ++i) {
    out[i] = {logit_rank(row[static_cast<size_t>(columns[i])]), static_cast<int32_t>(first_id + columns[i])};
  }
  return static_cast<int64_t>(count);
}

}  // namespace

void* CandidateWorkspaces::of(Device& device, int64_t rows, int64_t columns, int64_t count) {
  for (const Entry& entry : entries_) {
    if (entry.rows >= rows && entry.columns >= columns && entry.count >= count) return entry.memory.data();
  }
  Entry entry{rows, columns, count,
              DeviceBuffer(candidates_workspace_bytes(rows, columns, count), "candidates", device.where())};
  if (entry.memory.bytes() > 0) {
    device.check(
        cudaMemsetAsync(entry.memory.data(), 0, static_cast<size_t>(entry.memory.bytes()), device.lend_stream()),
        "cudaMemsetAsync");
  }
  entries_.push_back(std::move(entry));
  return entries_.back().memory.data();
}

Logits::Logits(Device& device, StepTimer& timer)
    : device_(device),
      timer_(timer),
      copied_(make_event(device.where())),
      top_(kMaxCandidates * kCandidateBytes, "candidates", device.where()),
      top_on_host_(kMaxCandidates * kCandidateBytes, "candidates", device.where()),
      noise_(static_cast<int64_t>(sizeof(CandidateNoise)), "noise", device.where()),
      noise_on_host_(static_cast<int64_t>(sizeof(CandidateNoise)), "noise", device.where()) {}

void Logits::begin(cudaEvent_t done) {
  done_ = done;
  step_done_ = false;
  for (HostRow& row : host_rows_) row.logits = nullptr;
}

void Logits::wait_for_step() {
  if (!step_done_) device_.wait(done_, "a step");
  step_done_ = true;
}

void Logits::prepare(CudaRecordings& recordings, Activations logits, int64_t valid_columns, int64_t first_id) {
  require(logits.rows <= recordings.most_rows(), "prepare_candidates: more rows than the recordings are for");
  require(valid_columns >= 0 && valid_columns <= logits.columns, "prepare_candidates: more valid columns than columns");
  if (logits.rows == 0 || (valid_columns == 0 && !exchange_)) return;
  const auto shape = [&] { return fmt::format("logits [{}, {}]", logits.rows, valid_columns); };
  if (valid_columns > 0) {
    void* const workspace = workspaces_.of(device_, logits.rows, valid_columns, 1);
    device_.check(candidates({.logits = static_cast<const float*>(logits.data),
                              .rows = logits.rows,
                              .columns = valid_columns,
                              .stride = logits.stride,
                              .first_id = static_cast<int32_t>(first_id),
                              .count = 1,
                              .out = recordings.best_on_device(),
                              .workspace = workspace,
                              .stamps = timer_.stamps(),
                              .programmatic = device_.programmatic()},
                             device_.stream()),
                  "candidates", shape);
  } else {  // the share of a rank without any: all bits set is no token
    device_.check(cudaMemsetAsync(recordings.best_on_device(), 0xFF, static_cast<size_t>(logits.rows * kCandidateBytes),
                                  device_.lend_stream()),
                  "cudaMemsetAsync", shape);
  }
  timer_.go_on_as(kernels::Operation::kExchange);
  const bool exchanged = exchange_ && exchange_(recordings.best_on_device(), logits.rows);
  device_.check(cudaMemcpyAsync(const_cast<CandidateOut*>(recordings.best()), recordings.best_on_device(),
                                static_cast<size_t>(logits.rows * kCandidateBytes), cudaMemcpyDeviceToHost,
                                device_.lend_stream()),
                "cudaMemcpyAsync", [] { return "candidates"; });
  recordings.prepared = {logits.data, logits.rows, valid_columns, first_id, exchanged};
}

bool Logits::best_of_group(const CudaRecordings& recordings, const Activations& logits, std::span<Candidate> out) {
  const PreparedCandidates& prepared = recordings.prepared;
  if (!prepared.exchanged || prepared.logits != logits.data || std::ssize(out) > prepared.rows) return false;
  wait_for_step();
  for (size_t row = 0; row < out.size(); ++row) {
    const CandidateOut& best = recordings.best()[row];
    out[row] = {best.logit, best.token_id};
  }
  return true;
}

bool Logits::on_host(Activations logits, int64_t row) const {
  return row < std::ssize(host_rows_) && host_rows_[static_cast<size_t>(row)].logits == logits.data;
}

int64_t Logits::top(const CudaRecordings& recordings, Activations logits, int64_t row, int64_t valid_columns,
                    int64_t first_id, std::span<Candidate> out) {
  require(row >= 0 && row < logits.rows, "top_candidates: no such row");
  require(valid_columns >= 0 && valid_columns <= logits.columns, "top_candidates: more valid columns than columns");
  const int64_t count = std::min<int64_t>(std::ssize(out), valid_columns);
  if (count == 0) return 0;
  if (on_host(logits, row) || count > kMaxCandidates) {
    return top_of_row(host_row(logits, row).first(static_cast<size_t>(valid_columns)), first_id, out);
  }
  const PreparedCandidates& prepared = recordings.prepared;
  if (count == 1 && !prepared.exchanged && prepared.logits == logits.data && row < prepared.rows &&
      prepared.columns == valid_columns && prepared.first_id == first_id) {
    wait_for_step();
    const CandidateOut& best = recordings.best()[row];
    out[0] = {best.logit, best.token_id};
    return 1;
  }
  ask_device(logits, row, valid_columns, first_id, nullptr, out.first(static_cast<size_t>(count)));
  return count;
}

Candidate Logits::draw(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                       const kernels::Noise& noise) {
  require(row >= 0 && row < logits.rows, "draw: no such row");
  require(valid_columns >= 0 && valid_columns <= logits.columns, "draw: more valid columns than columns");
  Candidate best{-std::numeric_limits<float>::infinity(), -1};
  if (valid_columns == 0) return best;
  if (on_host(logits, row) || std::isfinite(noise.lowest_score)) {
    return noisiest(host_row(logits, row).first(static_cast<size_t>(valid_columns)), first_id, noise);
  }
  // Above: whatever lies below the reference is out of reach long before that. Below: 0 would be no noise at all, where
  // an endless temperature is nothing but noise.
  constexpr double kLargestInverse = 1e30;
  constexpr double kLeastInverse = std::numeric_limits<float>::min();
  *noise_on_host_.as<CandidateNoise>() = {
      .key = noise.key,
      .inverse_temperature = static_cast<float>(std::clamp(1 / noise.temperature, kLeastInverse, kLargestInverse)),
      .reference = noise.reference};
  device_.check(cudaMemcpyAsync(noise_.data(), noise_on_host_.data(), sizeof(CandidateNoise), cudaMemcpyHostToDevice,
                                device_.lend_stream()),
                "cudaMemcpyAsync", [] { return "noise"; });
  ask_device(logits, row, valid_columns, first_id, noise_.as<CandidateNoise>(), {&best, 1});
  return best;
}

void Logits::ask_device(Activations logits, int64_t row, int64_t valid_columns, int64_t first_id,
                        const CandidateNoise* noise, std::span<Candidate> out) {
  const auto count = std::ssize(out);
  void* const workspace = workspaces_.of(device_, 1, valid_columns, count);
  device_.check(candidates({.logits = static_cast<const float*>(logits.data) + row * logits.stride,
                            .rows = 1,
                            .columns = valid_columns,
                            .stride = logits.stride,
                            .first_id = static_cast<int32_t>(first_id),
                            .count = count,
                            .noise = noise,
                            .out = top_.as<CandidateOut>(),
                            .workspace = workspace,
                            .programmatic = device_.programmatic()},
                           device_.stream()),
                "candidates", [&] { return fmt::format("{} of {} logits", count, valid_columns); });
  device_.check(cudaMemcpyAsync(top_on_host_.data(), top_.data(), static_cast<size_t>(count * kCandidateBytes),
                                cudaMemcpyDeviceToHost, device_.lend_stream()),
                "cudaMemcpyAsync", [] { return "candidates"; });
  device_.check(cudaEventRecord(copied_.get(), device_.stream()), "cudaEventRecord");
  device_.wait(copied_.get(), "choosing candidates");
  for (int64_t i = 0; i < count; ++i) {
    const CandidateOut& found = top_on_host_.as<const CandidateOut>()[i];
    out[static_cast<size_t>(i)] = {found.logit, found.token_id};
  }
}

std::span<float> Logits::host_row(Activations logits, int64_t row) {
  require(row >= 0 && row < logits.rows, "host_logits: no such row");
  const auto columns = static_cast<size_t>(logits.columns);
  if (columns == 0) return {};
  if (row >= std::ssize(host_rows_)) host_rows_.resize(static_cast<size_t>(row) + 1);
  HostRow& on_host = host_rows_[static_cast<size_t>(row)];
  const auto bytes = static_cast<int64_t>(columns * sizeof(float));
  if (on_host.memory.bytes() < bytes) on_host = {PinnedBuffer(bytes, "a row of logits", device_.where()), nullptr};
  const std::span<float> mirror(on_host.memory.as<float>(), columns);
  if (on_host.logits == logits.data) return mirror;
  device_.check(cudaMemcpyAsync(mirror.data(), static_cast<const float*>(logits.data) + row * logits.stride,
                                mirror.size_bytes(), cudaMemcpyDeviceToHost, device_.lend_stream()),
                "cudaMemcpyAsync", [] { return "a row of logits"; });
  device_.check(cudaEventRecord(copied_.get(), device_.stream()), "cudaEventRecord");
  device_.wait(copied_.get(), "copying a row of logits");
  on_host.logits = logits.data;
  return mirror;
}

}  // namespace shardscope::cuda
