#include "runtime/plan/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/plan/published.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kBytesOfBf16 = 2;
constexpr double kBytesPerUsOfGb = 1e3;
constexpr double kCovered = 0.9;  // of the rows

/// The whole number of us from 0 to `most` at which the sum of |ln(predicted / published)| over rows is smallest:
/// deviations count alone, not squared, so that one odd row does not carry all others.
template <typename Predict>
double best_constant(const std::vector<const PublishedRow*>& rows, int most, Predict predict) {
  constexpr int kCoarse = 10;
  const auto deviation = [&](int value) {
    double sum = 0;
    for (const PublishedRow* row : rows) sum += std::abs(std::log(predict(*row, value) / row->published));
    return sum;
  };
  const auto least_of = [&](int from, int to, int step) {
    std::pair<double, int> least{INFINITY, from};
    for (int value = from; value <= to; value += step) least = std::min(least, {deviation(value), value});
    return least.second;
  };
  const int near = least_of(0, most, kCoarse);
  return least_of(std::max(near - kCoarse, 0), std::min(near + kCoarse, most), 1);
}

std::vector<const PublishedRow*> rows_of(const PlanConstants& constants, const LeftOut& left_out,
                                         const std::function<bool(const PublishedRow&)>& wanted) {
  std::vector<const PublishedRow*> rows;
  for (const PublishedRow& row : constants.published) {
    if (wanted(row) && !left_out.row(row)) rows.push_back(&row);
  }
  return rows;
}

double fitted_half_us(const PlanConstants& constants, const LeftOut& left_out, const Calibration& so_far,
                      PublishedModels& models) {
  constexpr int kMostUs = 400;
  Calibration trial = so_far;
  for (const Software& family : constants.software) trial.overhead_us.try_emplace(family.name, 0);  // not in any TTFT
  const auto rows =
      rows_of(constants, left_out, [](const PublishedRow& row) { return row.figure == PublishedFigure::kTtftMs; });
  return best_constant(rows, kMostUs, [&](const PublishedRow& row, int value) {
    trial.prefill_half_us = value;
    return models.predicted(row, trial);
  });
}

double fitted_overhead_us(const PlanConstants& constants, const LeftOut& left_out, const Calibration& so_far,
                          const std::string& family, PublishedModels& models) {
  constexpr int kMostUs = 300;
  const auto rows_for = [&](bool all) {
    return rows_of(constants, left_out, [&](const PublishedRow& row) {
      const bool fitted = !constants.software_named(row.software).overhead_us;
      return fitted && row.figure != PublishedFigure::kTtftMs && (all || row.software == family);
    });
  };
  std::vector<const PublishedRow*> rows = rows_for(false);
  if (rows.empty()) rows = rows_for(true);
  Calibration trial = so_far;
  return best_constant(rows, kMostUs, [&](const PublishedRow& row, int value) {
    trial.overhead_us[row.software] = value;
    return models.predicted(row, trial);
  });
}

/// e such that that share of the deviations is at most ln(1 + e).
double spread_of(std::vector<double> deviations) {
  if (deviations.empty()) return 0;
  std::sort(deviations.begin(), deviations.end());
  const auto rank = static_cast<size_t>(std::ceil(kCovered * static_cast<double>(deviations.size())));
  return std::expm1(deviations[std::min(deviations.size() - 1, rank == 0 ? 0 : rank - 1)]);
}

Calibration with_spread(const PlanConstants& constants) {
  Calibration calibration = fit_constants(constants);
  calibration.spread = spread_without(predicted_without_system(constants), {});
  return calibration;
}

bool meets(const std::set<System>& some, const std::set<System>& others) {
  return std::any_of(some.begin(), some.end(), [&](const System& one) { return others.count(one) > 0; });
}

}  // namespace

GpuLike table_gpu(const PlanConstants& constants, std::string_view gpu) {
  const bool own = std::any_of(constants.products.begin(), constants.products.end(),
                               [&](const ProductTable& table) { return table.gpu == gpu; });
  if (own) return {.gpu = std::string(gpu), .same = true, .why = ""};
  for (const Likeness& like : constants.like) {
    if (std::find(like.gpus.begin(), like.gpus.end(), gpu) == like.gpus.end()) continue;
    return {.gpu = like.as, .same = like.same, .why = like.why};
  }
  throw BugError(fmt::format("table_gpu: constants.json says nothing of {}", gpu));
}

ProductFit fit_products(const ProductTable& table, double gb_per_s) {
  // launch + slope x bytes = time, each equation divided by its time.
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double a = 0;
  double b = 0;
  const auto bytes_of = [](const ProductPoint& point) {
    return kBytesOfBf16 * static_cast<double>(point.rows) * static_cast<double>(point.columns);
  };
  const auto time_of = [&](const ProductPoint& point) {
    return bytes_of(point) / (gb_per_s * kBytesPerUsOfGb * point.share);
  };
  for (const ProductPoint& point : table.points) {
    const double x = 1 / time_of(point);
    const double y = bytes_of(point) / time_of(point);
    aa += x * x;
    ab += x * y;
    bb += y * y;
    a += x;
    b += y;
  }
  const double determinant = aa * bb - ab * ab;
  const double launch_us = (a * bb - b * ab) / determinant;
  const double slope = (aa * b - ab * a) / determinant;
  const double share = 1 / (slope * gb_per_s * kBytesPerUsOfGb);
  if (!(std::abs(determinant) > 1e-9 * aa * bb) || !(launch_us >= 0) || !(share > 0 && share < 1)) {
    throw UserError("a launch and a share of the bandwidth cannot be fitted to these products", table.gpu,
                    "give products of several sizes");
  }
  ProductFit fit{.launch_us = launch_us, .share = share, .errors = {}};
  for (const ProductPoint& point : table.points) {
    fit.errors.push_back((launch_us + slope * bytes_of(point)) / time_of(point) - 1);
  }
  return fit;
}

std::set<System> systems_of(const PublishedRow& row) {
  std::set<System> systems = {{row.software, row.of.model, row.of.gpu}};
  if (row.against) systems.insert({row.software, row.against->model, row.against->gpu});
  return systems;
}

LeftOut without_systems(const PlanConstants& constants, const std::set<System>& systems) {
  LeftOut left_out;
  left_out.row = [systems](const PublishedRow& other) { return meets(systems_of(other), systems); };
  // Nothing is fitted to what is made up of kernels' times: there the kernels' own table is what is left out.
  for (const System& system : systems) {
    if (constants.software_named(system[0]).overhead_us) left_out.products_of = table_gpu(constants, system[2]).gpu;
  }
  return left_out;
}

Calibration fit_constants(const PlanConstants& constants, const LeftOut& left_out) {
  Calibration calibration;
  for (const ProductTable& table : constants.products) {
    if (table.gpu == left_out.products_of) continue;
    const topology::DevicePeaks* gpu = topology::find_device_peaks(table.gpu);
    require(gpu != nullptr, "fit_constants: a table of a GPU that is not known");
    calibration.products[table.gpu] = fit_products(table, gpu->gb_per_s);
  }
  require(!calibration.products.empty(), "fit_constants: no table of products");
  PublishedModels models(constants);
  calibration.prefill_half_us = fitted_half_us(constants, left_out, calibration, models);
  for (const Software& family : constants.software) {
    if (family.overhead_us) calibration.overhead_us[family.name] = *family.overhead_us;
  }
  const Calibration fixed = calibration;
  for (const Software& family : constants.software) {
    if (family.overhead_us || !family.as.empty()) continue;
    calibration.overhead_us[family.name] = fitted_overhead_us(constants, left_out, fixed, family.name, models);
  }
  return calibration;
}

std::vector<std::pair<const PublishedRow*, double>> predicted_without_system(const PlanConstants& constants) {
  PublishedModels models(constants);
  std::map<std::set<System>, Calibration> fits;
  std::vector<std::pair<const PublishedRow*, double>> predictions;
  for (const PublishedRow& row : constants.published) {
    const std::set<System> systems = systems_of(row);
    auto fit = fits.find(systems);
    if (fit == fits.end()) {
      fit = fits.emplace(systems, fit_constants(constants, without_systems(constants, systems))).first;
    }
    predictions.emplace_back(&row, models.predicted(row, fit->second));
  }
  return predictions;
}

Spread90 spread_without(const std::vector<std::pair<const PublishedRow*, double>>& predictions,
                        const std::set<System>& systems) {
  std::vector<double> step;
  std::vector<double> whole;
  for (const auto& [row, predicted] : predictions) {
    if (meets(systems_of(*row), systems)) continue;
    (of_the_step(*row) ? step : whole).push_back(std::abs(std::log(predicted / row->published)));
  }
  return {.step = spread_of(std::move(step)), .whole = spread_of(std::move(whole))};
}

const Calibration& plan_calibration() {
  static const Calibration calibration = with_spread(plan_constants());
  return calibration;
}

double overhead_of(const PlanConstants& constants, const Calibration& calibration, const Software& software) {
  const auto own = calibration.overhead_us.find(software.name);
  if (own != calibration.overhead_us.end()) return own->second;
  require(!software.as.empty(), "overhead_of: a family without a fit");
  return overhead_of(constants, calibration, constants.software_named(software.as));
}

DensePeak dense_peak(const PlanConstants& constants, const topology::DevicePeaks& gpu, kernels::DType activations) {
  const auto of_type = [&](const topology::DevicePeaks& one) -> std::optional<double> {
    if (activations == kernels::DType::kBF16) return one.bf16_tflops;
    return activations == kernels::DType::kF16 ? one.fp16_tflops : std::nullopt;
  };
  if (const std::optional<double> own = of_type(gpu)) return {.tflops = own, .backed = true};
  if (activations == kernels::DType::kF32) return {};
  if (gpu.fp16_tflops) return {.tflops = gpu.fp16_tflops, .backed = false};
  const GpuLike like = table_gpu(constants, gpu.name);
  const topology::DevicePeaks* same = like.same ? topology::find_device_peaks(like.gpu) : nullptr;
  return {.tflops = same != nullptr ? of_type(*same) : std::nullopt, .backed = false};
}

Reach reach_of(const PlanConstants& constants, const Calibration& calibration, const topology::DevicePeaks& gpu,
               const Software& software, kernels::DType activations) {
  const GpuLike like = table_gpu(constants, gpu.name);
  // Where a table was left out, another GPU's stands for it.
  const auto found = calibration.products.find(like.gpu);
  const ProductFit& products =
      found == calibration.products.end() ? calibration.products.begin()->second : found->second;
  const auto large_of = [&](std::string_view name) {
    return std::find_if(constants.large_products.begin(), constants.large_products.end(),
                        [&](const LargeProducts& one) { return one.gpu == name; });
  };
  const auto own = large_of(gpu.name);
  const auto large = own != constants.large_products.end() ? own : large_of(like.gpu);
  require(large != constants.large_products.end(), "reach_of: no large products of such a GPU");
  return {.gb_per_s = gpu.gb_per_s,
          .tflops = dense_peak(constants, gpu, activations).tflops,
          .memory_share = products.share,
          .compute_share = large->share,
          .launch_us = products.launch_us,
          .attention_us = constants.attention_us,
          .prefill_half_us = calibration.prefill_half_us,
          .prompt_tokens_at_once = software.prompt_tokens_at_once,
          .overhead_us = overhead_of(constants, calibration, software),
          .stage_hop_us = constants.stage_hop_us};
}

}  // namespace shardscope::runtime
