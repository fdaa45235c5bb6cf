#include "runtime/plan/calibration.hpp"

#include <catch2/catch.hpp>

#include "kernels/base/error.hpp"
#include "runtime/plan/published.hpp"
#include "runtime/plan/self_check.hpp"

namespace shardscope::runtime {
namespace {

using Catch::Matchers::Contains;

/// Products that take 5 us + their bytes at 80 % of 1000 GB/s.
ProductTable exact_products() {
  ProductTable table{.gpu = "made up", .points = {}, .origin = {}};
  for (const int64_t rows : {512, 1024, 4096, 16384}) {
    const double bytes = 2.0 * static_cast<double>(rows) * 4096;
    const double us = 5 + bytes / (0.8 * 1e6);
    table.points.push_back({.rows = rows, .columns = 4096, .share = bytes / 1e6 / us});
  }
  return table;
}

TEST_CASE("fit_products: finds the launch and the share that made the table") {
  const ProductFit fit = fit_products(exact_products(), 1000);
  CHECK(fit.launch_us == Approx(5));
  CHECK(fit.share == Approx(0.8));
  for (const double error : fit.errors) CHECK(error == Approx(0).margin(1e-9));
}

TEST_CASE("fit_products: products of one size, or times that fall with bytes, are refused") {
  ProductTable table = exact_products();
  for (ProductPoint& point : table.points) point = table.points[0];
  CHECK_THROWS_AS(fit_products(table, 1000), UserError);
  table = exact_products();
  for (ProductPoint& point : table.points) point.share = static_cast<double>(point.rows) / 20000;  // one time for all
  CHECK_THROWS_WITH(fit_products(table, 1000), Contains("cannot be fitted"));
}

TEST_CASE("plan_calibration: constants are what the tables and rows give, and say how far off they were") {
  const Calibration& calibration = plan_calibration();
  CHECK(calibration.products.size() == plan_constants().products.size());
  for (const auto& [gpu, fit] : calibration.products) {
    INFO(gpu);
    CHECK(fit.launch_us > 1);
    CHECK(fit.share < 0.95);
    double sum = 0;
    for (const double error : fit.errors) sum += std::abs(error);
    CHECK(sum / static_cast<double>(fit.errors.size()) < 0.1);
  }
  CHECK(calibration.overhead_us.at("kernels") == 0);
  CHECK(calibration.overhead_us.at("fastertransformer") > 50);
  CHECK(calibration.spread.step > 0.05);
  CHECK(calibration.spread.whole > 0.05);
  const Software& ours = plan_constants().software_named("shardscope");
  CHECK(overhead_of(plan_constants(), calibration, ours) == calibration.overhead_us.at("gpt-fast"));
}

TEST_CASE("fit_constants: what is left out is not used") {
  const auto row = [](const char* name) {
    for (const PublishedRow& one : plan_constants().published) {
      if (one.row == name) return one;
    }
    throw BugError("no such row");
  };
  const std::set<System> systems = systems_of(row("C11 H100 / A100, batch 16"));
  CHECK(systems ==
        std::set<System>{{"tensorrt-llm", "llama2-70b", "h100-sxm"}, {"tensorrt-llm", "llama2-70b", "a100-40gb"}});
  // One side of a ratio is enough to be left out.
  const LeftOut without = without_systems(plan_constants(), systems_of(row("C12 TP 1 batch 4")));
  CHECK(without.row(row("C12 TP 4 batch 16")));
  CHECK(without.row(row("C4 mpt-30b / mpt-7b")));
  CHECK(without.row(row("C8 mpt-7b TP 2")));
  CHECK_FALSE(without.row(row("C8 llama2-70b TP 4")));
  CHECK_FALSE(without.row(row("C9 llama2-70b TP 8 / 4")));
  CHECK_FALSE(without.row(row("C5 4 x a100-40gb")));
  const LeftOut kernels = without_systems(plan_constants(), systems_of(row("kernels 8B nccl TP 2")));
  CHECK(kernels.products_of == "h100-sxm");
  CHECK(fit_constants(plan_constants(), kernels).products.count("h100-sxm") == 0);
  // With one family's rows changed by a factor, only its own constant moves.
  PlanConstants changed = plan_constants();
  for (PublishedRow& one : changed.published) {
    if (one.software == "tensorrt-llm" && !one.against) one.published /= 1.5;
  }
  const Calibration moved = fit_constants(changed);
  CHECK(moved.overhead_us.at("tensorrt-llm") > plan_calibration().overhead_us.at("tensorrt-llm"));
  CHECK(moved.overhead_us.at("fastertransformer") == plan_calibration().overhead_us.at("fastertransformer"));
}

TEST_CASE("self_check: published figures are met, rules hold, and ranges cover what they claim") {
  const SelfCheck check = self_check(plan_constants(), plan_calibration());
  CHECK(check.rows.size() == plan_constants().published.size());
  CHECK(check.all.rows == check.rows.size());
  CHECK(check.systems.rows == 36);
  CHECK(check.systems.mean <= 0.12);
  // Every range comes from other systems than the one whose figure it is asked to cover.
  CHECK(check.all.covered >= 0.9);
  for (const CheckedRow& row : check.rows) {
    INFO(row.row);
    CHECK(row.low < row.left_out);
    CHECK(row.left_out < row.high);
    // The one that no hardware explains apart, none is off by more than a third.
    if (row.row != "C4 llama2-70b / llama2-13b") CHECK(std::abs(row.error()) < 1.0 / 3);
  }
  for (const CheckedRule& rule : check.rules) {
    INFO(rule.rule << ": " << rule.evidence);
    CHECK(rule.holds);
  }
  const std::string text = self_check_text(check, plan_constants(), plan_calibration());
  CHECK_THAT(text,
             Contains("C5 2 x h100-sxm") && Contains("whole systems") && Contains("holds") && Contains("a layer"));
}

TEST_CASE("self_check: a published figure that the model does not give is found out") {
  PlanConstants wrong = plan_constants();
  for (PublishedRow& row : wrong.published) {
    if (row.row == "gpt-fast 70B TP 2") row.published *= 1.5;
  }
  const SelfCheck right = self_check(plan_constants(), plan_calibration());
  const SelfCheck check = self_check(wrong, plan_calibration());
  for (size_t i = 0; i < check.rows.size(); ++i) {
    const bool changed = check.rows[i].row == "gpt-fast 70B TP 2";
    CHECK((check.rows[i].error() != right.rows[i].error()) == changed);
    if (changed) CHECK_FALSE(check.rows[i].covered());
  }
}

TEST_CASE("dense_peak: of the activations' type, or said not to be") {
  const auto peak = [](const char* gpu, kernels::DType type) {
    return dense_peak(plan_constants(), *topology::find_device_peaks(gpu), type);
  };
  CHECK(*peak("a100-40gb", kernels::DType::kBF16).tflops == 312);
  CHECK(peak("a100-40gb", kernels::DType::kBF16).backed);
  CHECK_FALSE(peak("a100-40gb", kernels::DType::kF32).tflops);
  CHECK(*peak("v100-sxm2-16gb", kernels::DType::kBF16).tflops == 125);
  CHECK_FALSE(peak("v100-sxm2-16gb", kernels::DType::kBF16).backed);
  CHECK(*peak("a100-64gb", kernels::DType::kBF16).tflops == 312);  // of the same chip
  CHECK_FALSE(peak("a100-64gb", kernels::DType::kBF16).backed);
  CHECK_FALSE(peak("rtx-pro-6000", kernels::DType::kBF16).tflops);
}

}  // namespace
}  // namespace shardscope::runtime
