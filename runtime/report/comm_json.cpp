#include "runtime/report/comm_report.hpp"
#include "runtime/report/json_values.hpp"

namespace shardscope::runtime {
namespace {

const char* kind_name(bool emulated) {
  return emulated ? "emulated" : "measured";
}

Json row_json(const SumRow& row) {
  const std::optional<SumBandwidth>& bandwidth = row.bandwidth;
  return {{"kind", kind_name(row.emulated)},
          {"tp", row.sum.tp},
          {"bytes", row.sum.bytes()},
          {"count", row.sum.count},
          {"dtype", kernels::facts(row.sum.dtype).name},
          {"algorithm", row.way},
          {"graph", row.sum.graph},
          {"time_us", distribution_json(row.time_us)},
          {"calls_per_sample", row.calls_a_sample},
          {"wait_us", value_or_null(row.wait_us)},
          {"transfer_us", value_or_null(row.transfer_us)},
          {"wait_from", row.wait_from ? Json(wait_from_name(*row.wait_from)) : Json(nullptr)},
          {"clock_step_us", value_or_null(row.clock_step_us)},
          {"algbw_gb_per_s", bandwidth ? Json(bandwidth->algbw_gb_per_s) : Json(nullptr)},
          {"busbw_gb_per_s", bandwidth ? Json(bandwidth->busbw_gb_per_s) : Json(nullptr)},
          {"wrong", row.wrong},
          {"unmet", value_or_null(row.unmet)}};
}

Json protocol_json(const CommReport& report) {
  const SumProtocol& protocol = report.protocol;
  return {{"kind", kind_name(report.emulated)},
          {"warmup_samples", protocol.warmup},
          {"iterations", value_or_null(protocol.iterations)},  // null: until the noise is low
          {"least_samples", protocol.least_samples},
          {"most_samples", protocol.most_samples},
          {"noise_bound", protocol.noise_bound},
          {"max_seconds", protocol.max_seconds},
          {"stop_rule", protocol.stop_rule()},
          {"order", "interleaved, seeded"},
          {"order_seed", protocol.seed},
          {"timer", "each rank's own, slowest rank of each sample"},
          {"percentile_method", kPercentileMethod}};
}

}  // namespace

Json comm_json(const CommReport& report) {
  Json rows = Json::array();
  for (const SumRow& row : report.rows) rows.push_back(row_json(row));
  Json changes = Json::array();
  for (const Crossover& crossover : crossovers(report.rows)) {
    changes.push_back({{"tp", crossover.tp},
                       {"dtype", kernels::facts(crossover.dtype).name},
                       {"graph", crossover.graph},
                       {"from_bytes", crossover.from_bytes},
                       {"algorithm", crossover.way}});
  }
  Json left_out = Json::array();
  for (const LeftOutWay& way : report.left_out) {
    left_out.push_back({{"tp", way.tp}, {"algorithm", way.way}, {"why", way.why}});
  }
  return {{"schema", "shardscope.comm/1"},     {"command", report.header.command},
          {"argv", report.header.argv},        {"options", report.header.options},
          {"complete", report.complete},       {"environment", environment_json(report.header.environment)},
          {"protocol", protocol_json(report)}, {"rows", std::move(rows)},
          {"crossovers", std::move(changes)},  {"left_out", std::move(left_out)},
          {"warnings", report.warnings}};
}

}  // namespace shardscope::runtime
