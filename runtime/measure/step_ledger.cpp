#include "runtime/measure/step_ledger.hpp"

#include <algorithm>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

using kernels::Operation;

constexpr double kMsOfNs = 1e-6;

// What to_doubles lays down: steps, gaps, own times by kind, then four of each call.
constexpr size_t kHeader = 2 + kernels::kOperations.size();
constexpr size_t kOfCall = 4;

/// One rank's doubles.
class View {
 public:
  explicit View(std::span<const double> doubles) : doubles_(doubles) {}
  double steps() const { return doubles_[0]; }
  double gaps() const { return doubles_[1]; }
  double own(Operation operation) const { return doubles_[2 + static_cast<size_t>(operation)]; }
  size_t calls() const { return (doubles_.size() - kHeader) / kOfCall; }
  double begin(size_t call) const { return at(call, 0); }
  double arrived(size_t call) const { return at(call, 1); }
  double end(size_t call) const { return at(call, 2); }
  bool exchange(size_t call) const { return at(call, 3) != 0; }
  double duration(size_t call) const { return end(call) - begin(call); }

 private:
  double at(size_t call, size_t field) const { return doubles_[kHeader + call * kOfCall + field]; }
  std::span<const double> doubles_;
};

/// Of one collective: how long each rank waited for the last one.
void waits_of_call(const std::vector<View>& ranks, size_t call, bool one_clock, std::vector<double>& waits) {
  double last_begin = ranks.front().begin(call);
  double shortest = ranks.front().duration(call);
  for (const View& rank : ranks) {
    last_begin = std::max(last_begin, rank.begin(call));
    shortest = std::min(shortest, rank.duration(call));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const View& rank = ranks[i];
    double wait = rank.duration(call) - shortest;
    if (one_clock) {
      wait = last_begin - rank.begin(call);
    } else if (rank.arrived(call) >= 0) {
      wait = rank.arrived(call) - rank.begin(call);
    }
    waits[i] = std::clamp(wait, 0.0, rank.duration(call));
  }
}

bool belong_together(const std::vector<View>& ranks) {
  const View& first = ranks.front();
  return std::all_of(ranks.begin(), ranks.end(), [&](const View& rank) {
    if (rank.steps() != first.steps()) return false;
    for (size_t call = 0; call < first.calls(); ++call) {
      if (rank.exchange(call) != first.exchange(call)) return false;
    }
    return true;
  });
}

}  // namespace

void StepLedger::clear() {
  own_ns_.fill(0);
  gap_ns_ = 0;
  steps_ = 0;
  previous_end_ns_.reset();
  calls_.clear();
}

void StepLedger::add(std::span<const kernels::OperationTimes> times, bool decodes) {
  if (decodes) ++steps_;
  for (const kernels::OperationTimes& one : times) {
    const int64_t previous_end = previous_end_ns_.value_or(one.begin_ns);
    const int64_t begin = std::max(one.begin_ns, previous_end);
    const int64_t end = std::max(one.end_ns, begin);  // it ran within its predecessor: no time of its own
    previous_end_ns_ = end;
    if (!decodes) continue;
    gap_ns_ += begin - previous_end;
    if (kernels::is_collective(one.operation)) {
      calls_.push_back({.begin_ns = begin,
                        .arrived_ns = one.arrived_ns,
                        .end_ns = end,
                        .exchange = one.operation == Operation::kExchange});
    } else {
      own_ns_[static_cast<size_t>(one.operation)] += end - begin;
    }
  }
}

std::vector<double> StepLedger::to_doubles() const {
  std::vector<double> doubles = {static_cast<double>(steps_), static_cast<double>(gap_ns_)};
  doubles.reserve(kHeader + kOfCall * calls_.size());
  for (const int64_t own : own_ns_) doubles.push_back(static_cast<double>(own));
  for (const CollectiveCall& call : calls_) {
    doubles.push_back(static_cast<double>(call.begin_ns));
    doubles.push_back(static_cast<double>(call.arrived_ns));
    doubles.push_back(static_cast<double>(call.end_ns));
    doubles.push_back(call.exchange ? 1 : 0);
  }
  return doubles;
}

std::optional<std::vector<StepTimes>> step_times_of(std::span<const double> ledgers, size_t ranks, bool one_clock) {
  require(ranks > 0 && ledgers.size() % ranks == 0, "step_times_of: not one ledger a rank");
  const size_t stride = ledgers.size() / ranks;
  require(stride >= kHeader && (stride - kHeader) % kOfCall == 0, "step_times_of: not whole ledgers");
  std::vector<View> views;
  for (size_t rank = 0; rank < ranks; ++rank) views.emplace_back(ledgers.subspan(rank * stride, stride));
  const double steps = views.front().steps();
  if (!(steps > 0) || !belong_together(views)) return std::nullopt;

  std::vector<StepTimes> times(ranks);
  double noted = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    const View& view = views[rank];
    StepTimes& step = times[rank];
    step.products = view.own(Operation::kProduct);
    step.attention = view.own(Operation::kAttention);
    step.elementwise = view.own(Operation::kEmbedding) + view.own(Operation::kNorm) + view.own(Operation::kRows);
    step.head = view.own(Operation::kHead) + view.own(Operation::kCandidates);
    step.gaps = view.gaps();
    noted += step.products + step.head;
  }
  if (!(noted > 0)) return std::nullopt;
  std::vector<double> waits(ranks);
  for (size_t call = 0; call < views.front().calls(); ++call) {
    waits_of_call(views, call, one_clock, waits);
    for (size_t rank = 0; rank < ranks; ++rank) {
      StepTimes& step = times[rank];
      step.wait += waits[rank];
      (views[rank].exchange(call) ? step.head : step.transfer) += views[rank].duration(call) - waits[rank];
    }
  }
  for (StepTimes& step : times) {
    for (double StepTimes::*field : kStepTimes) step.*field *= kMsOfNs / steps;
  }
  return times;
}

}  // namespace shardscope::runtime
