#include "runtime/model/converting.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

constexpr int64_t kChunkElements = 1 << 16;  // converted at a time, so that buffers stay in the cache

class ConvertingWeights final : public WeightSource {
 public:
  ConvertingWeights(std::unique_ptr<WeightSource> source, kernels::DType target, Naming naming, std::string where)
      : source_(std::move(source)), target_(target), naming_(naming), where_(std::move(where)) {}

  kernels::DType dtype(WeightId id) const override {
    const kernels::DType stored = source_->dtype(id);
    return kernels::facts(stored).block_quantised || rule_of(id.role).vector ? stored : target_;
  }

  void read(WeightId id, Range rows, Range columns, std::span<std::byte> out) const override {
    const kernels::DType stored = source_->dtype(id);
    if (dtype(id) == stored) return source_->read(id, rows, columns, out);
    const int64_t width = kernels::row_bytes(target_, columns.size());
    require(std::ssize(out) == rows.size() * width, "WeightSource::read: the buffer has another size");
    if (out.empty()) return;
    const int64_t rows_at_once = std::clamp<int64_t>(kChunkElements / columns.size(), 1, rows.size());
    std::vector<std::byte> raw(static_cast<size_t>(rows_at_once * kernels::row_bytes(stored, columns.size())));
    std::vector<float> values(static_cast<size_t>(rows_at_once * columns.size()));
    for (int64_t row = rows.begin; row < rows.end; row += rows_at_once) {
      const int64_t count = std::min(rows_at_once, rows.end - row);
      const auto elements = static_cast<size_t>(count * columns.size());
      const auto bytes = std::span(raw).first(static_cast<size_t>(count * kernels::row_bytes(stored, columns.size())));
      const auto target =
          out.subspan(static_cast<size_t>((row - rows.begin) * width), static_cast<size_t>(count * width));
      source_->read(id, {row, row + count}, columns, bytes);
      kernels::dequantise_row(stored, bytes, std::span(values).first(elements));
      if (kernels::convert_row(std::span(values).first(elements), target_, target) > 0) refuse_overflow(id);
    }
  }

  std::string identity() const override { return source_->identity(); }

 private:
  [[noreturn]] void refuse_overflow(WeightId id) const {
    const bool half = target_ == kernels::DType::kF16;
    throw UserError(fmt::format("values of tensor {} exceed the {} range{}", weight_name(id, naming_),
                                kernels::facts(target_).name, half ? " (65504)" : ""),
                    where_, half ? "use --dtype bf16 or fp32" : "use --dtype fp32");
  }

  std::unique_ptr<WeightSource> source_;
  kernels::DType target_;
  Naming naming_;
  std::string where_;
};

}  // namespace

std::unique_ptr<WeightSource> converting_weights(std::unique_ptr<WeightSource> source, kernels::DType target,
                                                 Naming naming, std::string where) {
  require(!kernels::facts(target).block_quantised, "converting_weights: the target must be a plain type");
  return std::make_unique<ConvertingWeights>(std::move(source), target, naming, std::move(where));
}

}  // namespace shardscope::runtime
