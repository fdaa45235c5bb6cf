#include "parallel/cuda/device_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kernels/base/error.hpp"
#include "parallel/cuda/sum_choice.hpp"

namespace shardscope::parallel {
namespace {

constexpr int64_t kLeftToAuto = 64 << 10;  // bytes: where nobody says what messages there will be

/// Elements from the first of a view to its last: a range of columns does not reach the end of its buffer.
int64_t extent(const kernels::Activations& data) {
  return data.rows == 0 || data.columns == 0 ? 0 : (data.rows - 1) * data.stride + data.columns;
}

}  // namespace

DeviceCommunicator::DeviceCommunicator(World& world, std::unique_ptr<Communicator> host, DeviceStream stream,
                                       const DeviceSumOptions& options)
    : host_(std::move(host)), stream_(std::move(stream)) {
  ways_ = std::make_unique<DeviceWays>(world, *host_, stream_,
                                       ways_wanted(std::array{options.kind}, options.shared_devices));
  choose(options);
}

DeviceCommunicator::DeviceCommunicator(World& world, std::unique_ptr<Communicator> host, cuda::CudaBackend& backend,
                                       const DeviceSumOptions& options)
    : DeviceCommunicator(world, std::move(host), stream_of(backend), options) {
  backend.watch([this] { check(); }, [this] { abort(); });
  if (exchanges_ != nullptr) {
    backend.exchange_candidates_by(
        [this](cuda::CandidateOut* best, int64_t rows) { return exchanges_->exchange_candidates(best, rows); });
  }
  backend_ = &backend;
}

DeviceCommunicator::~DeviceCommunicator() {
  if (backend_ == nullptr) return;
  backend_->forget_watches();
  backend_->exchange_candidates_by({});
}

std::string_view DeviceCommunicator::name() const {
  return by_size_.size() == 1 ? by_size_.front().way->name() : "auto";
}

void DeviceCommunicator::take(DeviceSum& way) {
  by_size_ = {{0, &way}};
  choices_.choices = {{0, std::string(way.name())}};
}

void DeviceCommunicator::choose(const DeviceSumOptions& options) {
  require(!sums_on_hosts(options.kind), "sums on devices by a communicator of hosts");
  const std::string_view name = communicator_name(options.kind);
  for (const DeviceWays::Absent& absent : ways_->absent()) {
    if (absent.name == name) {
      throw UserError(fmt::format("--allreduce {} cannot be had here", name), absent.why_not, "");
    }
    choices_.left_out.push_back(fmt::format("{}: {}", absent.name, absent.why_not));
  }
  require(!ways_->ways().empty() || options.shared_devices, "no way of summing on devices");
  if (ways_->ways().empty()) {
    throw UserError("the ranks have no way of summing on their devices", ways_->absent().back().why_not,
                    "or --backend cpu");
  }
  exchanges_ = ways_->named("one-shot");
  if (options.kind != CommunicatorKind::kAuto) {
    DeviceSum* const way = ways_->named(name);
    require(way != nullptr, "a way of summing that was asked for is missing");
    take(*way);
  } else if (ways_->ways().size() == 1) {
    take(*ways_->ways().front());
  } else {
    std::vector<int64_t> sizes = options.message_bytes;
    if (sizes.empty()) sizes = {kLeftToAuto};
    choices_.graphs = true;
    choices_.measured = measure_ways(*ways_, *host_, stream_, options.dtype, sizes);
    // All ranks measured the same figures: those of the slowest.
    if (choices_.measured.empty()) {  // no way takes such messages whole: in as few pieces as can be
      const auto& all = ways_->ways();
      take(**std::max_element(all.begin(), all.end(),
                              [](const auto& a, const auto& b) { return a->most_bytes() < b->most_bytes(); }));
      return;
    }
    choices_.choices = decide(choices_.measured);
    by_size_.clear();
    for (const SumChoices::Choice& choice : choices_.choices) {
      by_size_.push_back({choice.from_bytes, ways_->named(choice.way)});
    }
    beyond_capacity();
  }
  for (const Choice& choice : by_size_) {
    if (choice.way->name() == "nccl-symmetric") makes_summed_ = choice.way;
  }
}

/// Messages that the last way does not take whole go to NCCL, where there is one, whatever was measured.
void DeviceCommunicator::beyond_capacity() {
  const int64_t most = by_size_.back().way->most_bytes();
  const bool symmetric = std::any_of(by_size_.begin(), by_size_.end(),
                                     [](const Choice& choice) { return choice.way->name() == "nccl-symmetric"; });
  DeviceSum* const nccl = ways_->named(symmetric ? "nccl-symmetric" : "nccl");
  if (nccl == nullptr || most >= nccl->most_bytes()) return;
  by_size_.push_back({most + 1, nccl});
  choices_.choices.push_back({most + 1, std::string(nccl->name())});
}

DeviceSum& DeviceCommunicator::way_for(int64_t bytes) const {
  const auto next = std::find_if(by_size_.begin() + 1, by_size_.end(),
                                 [&](const Choice& choice) { return choice.from_bytes > bytes; });
  return *(next - 1)->way;
}

void DeviceCommunicator::all_reduce(const kernels::Activations& data) {
  const SumTarget target{data.data, extent(data), data.dtype};
  if (target.count > 0) enqueue_sum(way_for(target.bytes()), target);
}

void DeviceCommunicator::all_reduce(kernels::NormedInput& input) {
  const kernels::Activations& addend = *input.addend;
  const int64_t bytes = extent(addend) * kernels::facts(addend.dtype).block_bytes;
  if (bytes > 0 && way_for(bytes).all_reduce_norm(input)) {
    input.ready = true;
  } else {
    all_reduce(addend);
  }
}

std::unique_ptr<kernels::ActivationBuffer> DeviceCommunicator::make_summed(kernels::Backend& backend, int64_t rows,
                                                                           int64_t columns) {
  if (makes_summed_ == nullptr) return backend.make_activations(rows, columns);
  return makes_summed_->make_summed(rows, columns, backend.precision().activations);
}

}  // namespace shardscope::parallel
