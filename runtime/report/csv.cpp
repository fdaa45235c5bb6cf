#include "runtime/report/csv.hpp"

#include <fmt/format.h>

#include "runtime/report/csv_line.hpp"
#include "runtime/report/names.hpp"

namespace shardscope::runtime {
namespace {

/// What a report's line has beside plain cells.
class Row : public CsvLine {
 public:
  void spread(const std::string& name, const std::optional<Spread>& value) {
    number(name + "_min", value ? std::optional(value->min) : std::nullopt);
    number(name + "_mean", value ? std::optional(value->mean) : std::nullopt);
    number(name + "_max", value ? std::optional(value->max) : std::nullopt);
  }
  void parts(const std::string& name, const std::optional<Parts>& value, const PointResult& point) {
    for (const Part part : kParts) {
      const bool known = value && point.knows(part);
      number(fmt::format("{}_{}_ms", name, name_of(part)), known ? std::optional((*value)[part]) : std::nullopt);
    }
  }
  void median(const std::string& name, const Distribution& distribution) {
    number(name, distribution.p50);
    number(name + "_low", distribution.p50_interval.low);
    number(name + "_high", distribution.p50_interval.high);
  }
};

Row row_of(const PointResult& point, const std::string& model, const std::string& host) {
  const auto supported = [](bool yes, const std::optional<double>& value) { return yes ? value : std::nullopt; };
  Row row;
  row.text("host", host);
  row.text("model", model);
  row.text("kind", kind_name(point.kind));
  row.text("status", status_name(point.status));
  row.number("tp", std::optional(point.tp));
  row.number("pp", std::optional(point.pp));
  row.text("placement", std::string(name_of(point.group.placement)));
  row.text("devices", fmt::format("{}", fmt::join(point.places(), " ")));
  row.number("replicas", std::optional(point.group.replicas));
  row.number("batch", std::optional(point.workload.batch));
  row.number("prompt_tokens", std::optional(point.workload.prompt_tokens));
  row.number("output_tokens", std::optional(point.workload.output_tokens));
  row.number("generations", std::optional(point.generations));
  row.median("ttft_ms_p50", point.ttft_ms);
  row.median("tpot_ms_p50", point.tpot_ms);
  row.number("tpot_ms_p95", supported(point.tpot_ms.p95_supported, point.tpot_ms.p95));
  row.number("tpot_ms_p99", supported(point.tpot_ms.p99_supported, point.tpot_ms.p99));
  row.number("tpot_ms_mean", point.tpot_ms.mean);
  row.number("tpot_ms_stddev", point.tpot_ms.stddev);
  row.number("itl_ms_p50", point.itl_ms.p50);
  row.number("itl_ms_p99", point.itl_ms.p99);
  row.number("latency_ms_p50", point.latency_ms.p50);
  row.number("throughput_tokens_per_s", point.throughput_tokens_per_s);
  row.number("requests_per_s", point.requests_per_s);
  row.number("mbu_nominal", point.mbu_nominal);
  row.spread("mbu", point.mbu);
  row.spread("mbu_achievable", point.mbu_achievable);
  row.spread("mbu_useful", point.mbu_useful);
  row.number("cache_resident", point.cache_resident);
  row.number("mfu_prefill", point.mfu_prefill);
  row.number("speedup", point.speedup);
  row.number("efficiency", point.efficiency);
  row.number("comm_share", point.comm_share);
  row.parts("attribution", point.attribution, point);
  row.parts("loss", point.loss, point);
  row.number("noise_relative", point.noise.relative);
  row.number("pass_shift", point.noise.pass_shift);
  row.text("verdicts", fmt::format("{}", fmt::join(point.verdicts, "; ")));
  return row;
}

}  // namespace

std::string points_csv(const std::vector<PointResult>& points, const std::string& model, const std::string& host) {
  std::string text = row_of({}, model, host).header();
  for (const PointResult& point : points) text += row_of(point, model, host).line();
  return text;
}

}  // namespace shardscope::runtime
