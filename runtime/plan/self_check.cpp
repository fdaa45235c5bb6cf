#include "runtime/plan/self_check.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/named.hpp"
#include "runtime/plan/published.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kGB = 1e9;

std::string unit_of(const PublishedRow& row) {
  if (row.against) return "ratio";
  switch (row.figure) {
    case PublishedFigure::kTpotMs:
    case PublishedFigure::kTtftMs:
    case PublishedFigure::kLatencyMs:
      return "ms";
    case PublishedFigure::kRequestsPerSecond:
      return "req/s";
    case PublishedFigure::kMbuNominal:
    case PublishedFigure::kMbuWeights:
      return "MBU";
  }
  return "";
}

CheckedRow checked(const PublishedRow& row, double predicted, double left_out, const Spread90& spread) {
  const double factor = 1 + (of_the_step(row) ? spread.step : spread.whole);
  return {.row = row.row,
          .unit = unit_of(row),
          .source = row.source,
          .note = row.note,
          .published = row.published,
          .software = row.software,
          .predicted = predicted,
          .left_out = left_out,
          .low = left_out / factor,
          .high = left_out * factor};
}

template <typename Wanted>
ErrorSizes sizes_of(const std::string& name, const std::vector<CheckedRow>& rows, Wanted wanted) {
  ErrorSizes sizes{.name = name};
  for (const CheckedRow& row : rows) {
    if (!wanted(row)) continue;
    ++sizes.rows;
    sizes.mean += std::abs(row.error());
    sizes.left_out_mean += std::abs(row.left_out_error());
    sizes.worst = std::max(sizes.worst, std::abs(row.error()));
    sizes.left_out_worst = std::max(sizes.left_out_worst, std::abs(row.left_out_error()));
    sizes.covered += row.covered() ? 1 : 0;
  }
  const auto count = static_cast<double>(std::max<size_t>(sizes.rows, 1));
  sizes.mean /= count;
  sizes.left_out_mean /= count;
  sizes.covered /= count;
  return sizes;
}

/// Predictions that rules compare, in the words of a published row.
class Rules {
 public:
  Rules(const PlanConstants& constants, const Calibration& calibration)
      : calibration_(calibration), models_(constants) {}

  double figure(PublishedFigure figure, const std::string& software, const PublishedCase& one) {
    return models_.predicted({.row = "",
                              .figure = figure,
                              .published = 1,
                              .software = software,
                              .way = "",
                              .of = one,
                              .against = std::nullopt,
                              .source = "",
                              .note = ""},
                             calibration_);
  }
  double mbu(const std::string& software, const PublishedCase& one) {
    return figure(PublishedFigure::kMbuNominal, software, one);
  }

 private:
  const Calibration& calibration_;
  PublishedModels models_;
};

PublishedCase case_of(const std::string& model, const std::string& gpu, int tp, int64_t batch, int64_t prompt = 512,
                      int64_t outputs = 64) {
  return {.model = model,
          .gpu = gpu,
          .tp = tp,
          .workload = {.batch = batch, .prompt_tokens = prompt, .output_tokens = outputs}};
}

void add_arithmetic(std::vector<CheckedRule>& rules) {
  const double tokens = 1e3 / 100;
  rules.push_back({"C1: 100 ms a token are 10 tokens/s", fmt::format("{:.0f} tokens/s", tokens), tokens == 10});
  const double mbu = 14e9 / 14e-3 / 2e12;
  rules.push_back({"C2: 14 GB in 14 ms of 2 TB/s are an MBU of 50 %", fmt::format("{:.0f} %", 100 * mbu),
                   std::abs(mbu - 0.5) < 1e-9});
}

void add_order(std::vector<CheckedRule>& rules, Rules& model) {
  const std::string ft = "fastertransformer";
  const std::string trt = "tensorrt-llm";
  const auto latency = [&](int64_t prompt, int64_t outputs) {
    return model.figure(PublishedFigure::kLatencyMs, ft, case_of("mpt-7b", "a100-40gb", 1, 1, prompt, outputs));
  };
  const double inputs = latency(1024, 64) - latency(512, 64);
  const double outputs = latency(512, 72) - latency(512, 64);
  rules.push_back({"C3: 512 more input tokens cost less than 8 more output tokens",
                   fmt::format("MPT-7B, A100-40GB: {:.1f} ms, {:.1f} ms", inputs, outputs), inputs < outputs});

  const auto kept = [&](const char* name) {
    return model.mbu(trt, case_of(name, "a100-40gb", 8, 1)) / model.mbu(trt, case_of(name, "a100-40gb", 4, 1));
  };
  rules.push_back(
      {"C6: MBU falls faster with TP for MPT-7B than for Llama-2-70B",
       fmt::format("TP 4 to 8: keeps {:.0f} % and {:.0f} %", 100 * kept("mpt-7b"), 100 * kept("llama2-70b")),
       kept("mpt-7b") < kept("llama2-70b")});

  const auto at = [&](int tp, int64_t batch) { return model.mbu(trt, case_of("llama2-70b", "h100-sxm", tp, batch)); };
  const auto keeps = [&](int tp) { return at(tp, 64) / at(tp, 1); };
  rules.push_back({"C7: MBU falls with batch, relatively less at higher TP",
                   fmt::format("Llama-2-70B, H100, batch 1 to 64: TP 2 keeps {:.0f} %, TP 8 {:.0f} %", 100 * keeps(2),
                               100 * keeps(8)),
                   keeps(2) < 1 && keeps(2) < keeps(8)});

  const auto rate = [&](int64_t batch) {
    return model.figure(PublishedFigure::kRequestsPerSecond, ft, case_of("mpt-7b", "a100-40gb", 1, batch));
  };
  const double gain = rate(256) / rate(128);
  rules.push_back({"C13: past the knee a doubled batch adds latency and hardly throughput",
                   fmt::format("MPT-7B, batch 128 to 256: throughput x {:.2f}, latency x {:.2f}", gain, 2 / gain),
                   gain < 1.1 && rate(16) / rate(8) > gain});
}

double parameters(const char* model) {
  return static_cast<double>(parameter_count(*named_configuration(model)));
}

void add_memory(std::vector<CheckedRule>& rules) {
  const double fp16 = 2 * parameters("llama2-70b");
  const auto least = [](double bytes, double gb) { return static_cast<int>(std::ceil(bytes / (gb * kGB))); };
  rules.push_back(
      {"C16: 8 instead of 16 bits halve the GPUs of Llama-2-70B; at 4 bits a laptop holds it",
       fmt::format("80 GB GPUs: {} and {}; {:.0f} GB at 4 bits", least(fp16, 80), least(fp16 / 2, 80), fp16 / 4 / kGB),
       least(fp16, 80) == 2 * least(fp16 / 2, 80) && fp16 / 4 < 64 * kGB});
  const ModelConfig config = *named_configuration("llama2-70b");
  const auto kv = [&](int64_t batch) {
    return 2.0 * 2.0 * static_cast<double>(config.layers * config.kv_heads * config.head_dim * 1024 * batch) / kGiB;
  };
  rules.push_back({"C17: KV cache of Llama-2-70B at 1024 tokens: 0.3125, 5, 10, 20 GiB at batch 1, 16, 32, 64",
                   fmt::format("{:.4f}, {:.0f}, {:.0f}, {:.0f} GiB", kv(1), kv(16), kv(32), kv(64)),
                   kv(1) == 0.3125 && kv(16) == 5 && kv(32) == 10 && kv(64) == 20});
  rules.push_back({"C18: Llama-2-70B fp16 fits neither one nor two A100-40GB, nor one GPU of 80 GB",
                   fmt::format("{:.0f} GB of weights", fp16 / kGB), fp16 > 2 * 40 * kGB && fp16 > 80 * kGB});
}

std::string percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}

std::string figure_of(const CheckedRow& row, double value) {
  return row.unit == "MBU" ? fmt::format("{:.1f} %", 100 * value) : fmt::format("{:.3g}", value);
}

std::string fits_text(const PlanConstants& constants, const Calibration& calibration) {
  std::string text = "Fitted to these tables and rows:\n";
  for (const auto& [gpu, fit] : calibration.products) {
    const auto [low, high] = std::minmax_element(fit.errors.begin(), fit.errors.end());
    text += wrapped(fmt::format(
        "{}: a product takes {:.2f} us + its bytes at {:.1f} % of the data-sheet bandwidth ({} products, residuals {} "
        "to {})",
        gpu, fit.launch_us, 100 * fit.share, fit.errors.size(), percent(*low), percent(*high)));
  }
  text += fmt::format("a product of a prompt: {:.0f} us beside its operations\n", calibration.prefill_half_us);
  for (const Software& software : constants.software) {
    const double us = overhead_of(constants, calibration, software);
    const char* const bound = us == 0 ? ", the least that a fit may give" : "";
    const std::string how = software.overhead_us  ? " by definition"
                            : software.as.empty() ? bound
                                                  : fmt::format(" ({})", software.why);
    text += wrapped(fmt::format("{}: {:.0f} us a layer{}", software.name, us, how));
  }
  return text;
}

}  // namespace

SelfCheck self_check(const PlanConstants& constants, const Calibration& calibration) {
  SelfCheck check;
  PublishedModels models(constants);
  const auto predictions = predicted_without_system(constants);
  for (const auto& [row, left_out] : predictions) {
    check.rows.push_back(
        checked(*row, models.predicted(*row, calibration), left_out, spread_without(predictions, systems_of(*row))));
  }
  Rules rules(constants, calibration);
  add_arithmetic(check.rules);
  add_order(check.rules, rules);
  add_memory(check.rules);
  for (const Software& family : constants.software) {
    ErrorSizes sizes =
        sizes_of(family.name, check.rows, [&](const CheckedRow& row) { return row.software == family.name; });
    if (sizes.rows > 0) check.families.push_back(std::move(sizes));
  }
  check.all = sizes_of("all", check.rows, [](const CheckedRow&) { return true; });
  check.systems = sizes_of("whole systems", check.rows, [&](const CheckedRow& row) {
    return !constants.software_named(row.software).overhead_us.has_value();
  });
  return check;
}

std::string self_check_text(const SelfCheck& check, const PlanConstants& constants, const Calibration& calibration) {
  std::vector<std::vector<std::string>> rows = {
      {"published figure", "unit", "published", "predicted", "error", "left out", "range"}};
  for (const CheckedRow& row : check.rows) {
    rows.push_back(
        {row.row, row.unit, figure_of(row, row.published), figure_of(row, row.predicted), percent(row.error()),
         percent(row.left_out_error()),
         fmt::format("{} to {}{}", figure_of(row, row.low), figure_of(row, row.high), row.covered() ? "" : " !")});
  }
  std::string text = aligned_table(rows) + "\n";
  text += wrapped(
      "left out: the error where no fit has seen a row's systems (software, model, GPU). range: of that prediction, by "
      "the spread of all other systems; ! marks figures outside.");
  std::vector<std::vector<std::string>> sizes = {
      {"errors of", "rows", "mean", "worst", "left out: mean", "worst", "in range"}};
  const auto add = [&](const ErrorSizes& one) {
    const auto size = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
    sizes.push_back({one.name, std::to_string(one.rows), size(one.mean), size(one.worst), size(one.left_out_mean),
                     size(one.left_out_worst), fmt::format("{:.0f} %", 100 * one.covered)});
  };
  for (const ErrorSizes& family : check.families) add(family);
  add(check.systems);
  add(check.all);
  text += fmt::format("\n{}\n", aligned_table(sizes));
  for (const CheckedRule& rule : check.rules) {
    text += wrapped(fmt::format("{}: {} ({})", rule.holds ? "holds" : "FAILS", rule.rule, rule.evidence));
  }
  text += "\n";
  std::vector<std::pair<std::string, std::string>> notes;  // and the rows that have them
  for (const CheckedRow& row : check.rows) {
    const auto same = std::find_if(notes.begin(), notes.end(), [&](const auto& one) { return one.first == row.note; });
    if (same == notes.end()) {
      notes.emplace_back(row.note, row.row);
    } else {
      same->second += fmt::format(", {}", row.row);
    }
  }
  for (const auto& [note, names] : notes) {
    if (!note.empty()) text += wrapped(fmt::format("{}: {}", names, note));
  }
  return fmt::format("{}\n{}", text, fits_text(constants, calibration));
}

}  // namespace shardscope::runtime
