#include "runtime/model/synthetic.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"

// One 64-bit hash of (tensor key, index of a group of four elements) gives four 12-bit numbers; each picks one of 4096
// quantiles of the normal distribution from a table that is already scaled and in the stored type. So an element costs
// a quarter of a hash and one load from the first-level cache.
namespace shardscope::runtime {
namespace {

constexpr size_t kQuantiles = 4096;
constexpr int64_t kLanes = 4;  // of 16 bits, of which the upper 12 are used

/// Finaliser of splitmix64. Source: Steele, Lea, Flood, OOPSLA 2014; Vigna's splitmix64.c.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15U;

/// Values at the middles of 4096 equal shares of the normal distribution, ascending, scaled to deviation 1 exactly.
std::array<float, kQuantiles> normal_quantiles() {
  std::array<double, kQuantiles> exact{};
  double squares = 0.0;
  for (size_t i = 0; i < kQuantiles / 2; ++i) {
    const double share = (static_cast<double>(i) + 0.5) / kQuantiles;
    double low = -8.0;
    double high = 0.0;
    for (int step = 0; step < 40; ++step) {
      const double middle = 0.5 * (low + high);
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
    }
    exact[i] = low;
    exact[kQuantiles - 1 - i] = -low;
    squares += 2.0 * low * low;
  }
  std::array<float, kQuantiles> table{};
  const double scale = std::sqrt(kQuantiles / squares);
  for (size_t i = 0; i < kQuantiles; ++i) table[i] = static_cast<float>(exact[i] * scale);
  return table;
}

template <typename Element>
void fill(std::span<const std::byte> table_bytes, uint64_t key, Range elements, std::byte* out) {
  std::array<Element, kQuantiles> table;
  std::memcpy(table.data(), table_bytes.data(), sizeof table);
  const auto hash = [&](int64_t group) { return mix(key + static_cast<uint64_t>(group) * kGolden); };
  const auto pick = [&](uint64_t word, int64_t lane) { return table[(word >> (16 * lane + 4)) & (kQuantiles - 1)]; };
  int64_t element = elements.begin;
  const auto put_one = [&] {
    const Element value = pick(hash(element / kLanes), element % kLanes);
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
    ++element;
  };
  while (element < elements.end && element % kLanes != 0) put_one();
  for (; element + kLanes <= elements.end; element += kLanes, out += kLanes * sizeof(Element)) {
    const uint64_t word = hash(element / kLanes);
    const std::array<Element, kLanes> values = {pick(word, 0), pick(word, 1), pick(word, 2), pick(word, 3)};
    std::memcpy(out, values.data(), sizeof values);
  }
  while (element < elements.end) put_one();
}

class SyntheticWeights final : public WeightSource {
 public:
  SyntheticWeights(ModelConfig config, kernels::DType dtype, uint64_t seed)
      : config_(std::move(config)), dtype_(dtype), seed_(seed) {
    require(!kernels::facts(dtype).block_quantised, "synthetic_weights: the dtype must be a plain one");
    const std::array<float, kQuantiles> normal = normal_quantiles();
    tables_.resize(weight_rules().size());
    for (const WeightRule& rule : weight_rules()) {
      std::array<float, kQuantiles> values{};
      const auto [mean, deviation] = scale_of(rule);
      for (size_t i = 0; i < kQuantiles; ++i) values[i] = mean + deviation * normal[i];
      std::vector<std::byte>& table = tables_[static_cast<size_t>(rule.role)];
      table.resize(static_cast<size_t>(kernels::row_bytes(dtype, kQuantiles)));
      kernels::convert_row(values, dtype, table);
    }
  }

  kernels::DType dtype(WeightId id) const override {
    check(id);
    return dtype_;
  }

  void read(WeightId id, Range rows, Range columns, std::span<std::byte> out) const override {
    check(id);
    const WeightShape shape = shape_of(config_, id.role);
    require(rows.begin >= 0 && rows.begin <= rows.end && rows.end <= shape.rows && columns.begin >= 0 &&
                columns.begin <= columns.end && columns.end <= shape.columns,
            "WeightSource::read: outside the tensor");
    const int64_t width = kernels::row_bytes(dtype_, columns.size());
    require(std::ssize(out) == rows.size() * width, "WeightSource::read: the buffer has another size");
    if (out.empty()) return;
    const auto place = static_cast<uint64_t>(id.layer + 1) * 256 + static_cast<uint64_t>(id.role);
    const uint64_t key = mix(mix(seed_ + kGolden) + place * kGolden);
    const std::vector<std::byte>& table = tables_[static_cast<size_t>(id.role)];
    const auto fill_range = [&](Range elements, std::byte* target) {
      if (dtype_ == kernels::DType::kF32) return fill<uint32_t>(table, key, elements, target);
      fill<uint16_t>(table, key, elements, target);
    };
    if (columns.size() == shape.columns) {
      return fill_range({rows.begin * shape.columns, rows.end * shape.columns}, out.data());
    }
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      fill_range({row * shape.columns + columns.begin, row * shape.columns + columns.end},
                 out.data() + (row - rows.begin) * width);
    }
  }

  std::string identity() const override { return fmt::format("synthetic seed {}", seed_); }

 private:
  std::pair<float, float> scale_of(const WeightRule& rule) const {
    const auto deviation =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_of(config_, rule.role).columns)));
    switch (rule.cut) {
      case Cut::kQueryColumns:
      case Cut::kFfnColumns: {  // of the whole model, so that --layers does not change a layer's weights
        const auto layers = static_cast<double>(config_.layers_in_file);
        return {0.0F, deviation / static_cast<float>(std::sqrt(2.0 * layers))};
      }
      case Cut::kReplicate:  // the norms
        return {1.0F, 0.1F};
      case Cut::kQueryRows:
      case Cut::kKvRows:
      case Cut::kFfnRows:
      case Cut::kVocabRows:
      case Cut::kFirstRank:
        return {0.0F, rule.vector ? 0.02F : deviation};
    }
    throw BugError("synthetic_weights: a cut outside the enumeration");
  }

  void check(WeightId id) const {
    const bool per_layer = rule_of(id.role).per_layer;
    require(per_layer ? id.layer >= 0 && id.layer < config_.layers : id.layer == -1, "WeightSource: no such layer");
    require(has_weight(config_, id.role), "WeightSource: the model has no such tensor");
  }

  ModelConfig config_;
  kernels::DType dtype_;
  uint64_t seed_;
  std::vector<std::vector<std::byte>> tables_;  // by role: 4096 values of the stored type
};

}  // namespace

std::unique_ptr<WeightSource> synthetic_weights(const ModelConfig& config, kernels::DType dtype, uint64_t seed) {
  return std::make_unique<SyntheticWeights>(config, dtype, seed);
}

}  // namespace shardscope::runtime
