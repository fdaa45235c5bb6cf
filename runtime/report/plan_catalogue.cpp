// What can be planned, by name: GPUs, machines, models, software.
#include <fmt/format.h>

#include "runtime/model/named.hpp"
#include "runtime/model/slice.hpp"
#include "runtime/report/json_values.hpp"
#include "runtime/report/plan_report.hpp"
#include "runtime/report/table.hpp"
#include "runtime/report/table_text.hpp"
#include "topology/catalogue.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kBillion = 1e9;

std::string whole_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.0f}", *value) : kUnknown;
}

/// Whose tables stand for it.
std::string tables_text(const PlanConstants& constants, std::string_view gpu) {
  const GpuLike like = table_gpu(constants, gpu);
  return like.same ? (like.gpu == gpu ? "its own" : like.gpu) : fmt::format("{} *", like.gpu);
}

std::string gpus_text(const PlanConstants& constants) {
  std::vector<std::vector<std::string>> rows = {{"GPU", "memory", "bandwidth", "fp16 dense", "fp8 dense", "tables"},
                                                {"", "GB", "GB/s", "TFLOP/s", "TFLOP/s", "of"}};
  for (const topology::DevicePeaks& peaks : topology::device_peaks()) {
    rows.push_back({std::string(peaks.name), fmt::format("{:.0f}", peaks.memory_gb),
                    fmt::format("{:.0f}", peaks.gb_per_s), whole_text(peaks.fp16_tflops), whole_text(peaks.fp8_tflops),
                    tables_text(constants, peaks.name)});
  }
  return fmt::format("--gpu NAME\n{}* another chip's: uncalibrated, and its ranges are wider\n", aligned_table(rows));
}

/// Two columns of words.
std::string words_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t widest = 0;
  for (const auto& [name, words] : rows) widest = std::max(widest, name.size());
  std::string text;
  for (const auto& [name, words] : rows) text += wrapped(fmt::format("{:<{}}  {}", name, widest, words));
  return text;
}

std::string machines_text() {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const topology::Machine& machine : topology::machines()) {
    rows.emplace_back(machine.name, fmt::format("{}{}", machine.what, machine.recorded ? "" : " +"));
  }
  return fmt::format(
      "--topology NAME (or a file that topo --file reads)\n{}"
      "+ not recorded on such a machine: --list --json - has what each rests on\n",
      words_table(rows));
}

std::string models_text() {
  std::vector<std::vector<std::string>> rows = {{"model", "layers", "parameters", "context"},
                                                {"", "", "10^9", "tokens"}};
  for (const std::string& name : named_configurations()) {
    const ModelConfig config = *named_configuration(name);
    rows.push_back({name, std::to_string(config.layers),
                    fmt::format("{:.3g}", static_cast<double>(parameter_count(config)) / kBillion),
                    std::to_string(config.max_positions)});
  }
  return fmt::format("--model NAME (or a folder, a .gguf file, a config.json)\n{}", aligned_table(rows));
}

std::string software_text(const PlanConstants& constants) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Software& software : constants.software) rows.emplace_back(software.name, software.what);
  return fmt::format("--software NAME\n{}", words_table(rows));
}

}  // namespace

std::string catalogue_text(const PlanConstants& constants) {
  return fmt::format("{}\n{}\n{}\n{}", gpus_text(constants), machines_text(), models_text(), software_text(constants));
}

Json catalogue_json(const PlanConstants& constants) {
  Json gpus = Json::array();
  for (const topology::DevicePeaks& peaks : topology::device_peaks()) {
    const GpuLike like = table_gpu(constants, peaks.name);
    gpus.push_back({{"name", peaks.name},
                    {"memory_gb", peaks.memory_gb},
                    {"gb_per_s", peaks.gb_per_s},
                    {"fp16_tflops", value_or_null(peaks.fp16_tflops)},
                    {"bf16_tflops", value_or_null(peaks.bf16_tflops)},
                    {"int8_tops", value_or_null(peaks.int8_tops)},
                    {"fp8_tflops", value_or_null(peaks.fp8_tflops)},
                    {"source", peaks.source},
                    {"tables_of", like.gpu},
                    {"calibrated", like.same}});
  }
  Json machines = Json::array();
  for (const topology::Machine& machine : topology::machines()) {
    machines.push_back({{"name", machine.name},
                        {"instance", machine.instance},
                        {"what", machine.what},
                        {"gpu", machine.gpu},
                        {"gpus", machine.gpus},
                        {"class", name_of(machine.fabric)},
                        {"network", text_or_null(std::string(machine.network))},
                        {"source", machine.source},
                        {"recorded", machine.recorded}});
  }
  Json models = Json::array();
  for (const std::string& name : named_configurations()) {
    const ModelConfig config = *named_configuration(name);
    models.push_back({{"name", name},
                      {"layers", config.layers},
                      {"parameters", parameter_count(config)},
                      {"max_positions", config.max_positions},
                      {"runs", named_configuration_runs(name)}});
  }
  Json software = Json::array();
  for (const Software& one : constants.software) {
    software.push_back({{"name", one.name}, {"what", one.what}, {"allreduce", one.way}});
  }
  return {{"schema", "shardscope.catalogue/1"},
          {"gpus", std::move(gpus)},
          {"machines", std::move(machines)},
          {"models", std::move(models)},
          {"software", std::move(software)}};
}

}  // namespace shardscope::runtime
