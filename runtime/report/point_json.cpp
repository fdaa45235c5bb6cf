// One measured point as `results[i]` of a report. Read back by point_reading.cpp, which changes with this file.
#include <algorithm>

#include "runtime/report/document.hpp"
#include "runtime/report/json_values.hpp"
#include "runtime/report/names.hpp"

namespace shardscope::runtime {
namespace {

Json interval_json(const Interval& interval) {
  return Json::array({value_or_null(interval.low), value_or_null(interval.high)});
}

Json spread_json(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {{"min", spread->min}, {"mean", spread->mean}, {"max", spread->max}};
}

/// of: the point that they are parts of, or of one of its ranks.
Json parts_json(const std::optional<Parts>& parts, const PointResult& of) {
  if (!parts) return nullptr;
  Json document = Json::object();
  for (const Part part : kParts) {
    document[std::string(name_of(part))] = of.knows(part) ? Json((*parts)[part]) : Json(nullptr);
  }
  return document;
}

Json rehearsal_json(const std::optional<Rehearsal>& rehearsal) {
  if (!rehearsal) return nullptr;
  return {{"rank", rehearsal->rank},
          {"co_runners", rehearsal->co_runners},
          {"step_collectives_ms", value_or_null(rehearsal->step_collectives_ms)},
          {"prefill_collectives_ms", value_or_null(rehearsal->prefill_collectives_ms)},
          {"collective_model", rehearsal->collective_model},
          {"stated_error", value_or_null(rehearsal->stated_error)}};
}

Json rank_json(const RankFigures& figures, const PointResult& point) {
  return {{"rank", figures.rank},
          {"query_heads", range_json(figures.shard.query_heads)},
          {"kv_heads", range_json(figures.shard.kv_heads)},
          {"ffn", range_json(figures.shard.ffn)},
          {"vocab", range_json(figures.shard.vocab)},
          {"bytes_per_step", step_bytes_json(figures.bytes)},
          {"memory_bytes", memory_json(figures.memory)},
          {"achievable_gb_per_s", figures.achievable_gb_per_s},
          {"achievable_median_gb_per_s", figures.achievable_median_gb_per_s},
          {"bandwidth_drift", figures.bandwidth_drift},
          {"tpot_ms", value_or_null(figures.tpot_ms)},
          {"mbu", value_or_null(figures.mbu)},
          {"mbu_achievable", value_or_null(figures.mbu_achievable)},
          {"mbu_useful", value_or_null(figures.mbu_useful)},
          {"waited_share", value_or_null(figures.waited_share)},
          {"attribution", parts_json(figures.attribution, point)},
          {"timer_step_ns", value_or_null(figures.timer_step_ns)},
          {"load_seconds", figures.load_seconds}};
}

/// Of the heaviest rank (the first of equals), by purpose; null where nothing was measured.
Json heaviest_memory_json(const std::vector<RankFigures>& ranks) {
  if (ranks.empty()) return nullptr;
  const auto total = [](const MemoryBytes& bytes) { return bytes.weights + bytes.kv + bytes.workspace; };
  const auto heaviest = std::max_element(ranks.begin(), ranks.end(), [&](const RankFigures& a, const RankFigures& b) {
    return total(a.memory) < total(b.memory);
  });
  return memory_json(heaviest->memory);
}

Json warm_up_json(const WarmUp& warm_up) {
  return {{"generations", warm_up.generations},
          {"change", value_or_null(warm_up.change)},
          {"steady", value_or_null(warm_up.steady)}};
}

Json outliers_json(const Outliers& outliers) {
  Json causes = Json::object();
  for (size_t i = 0; i < kOutlierCauses.size(); ++i) causes[cause_name(kOutlierCauses[i])] = outliers.causes[i];
  return {{"low_mild", outliers.low_mild},
          {"low_severe", outliers.low_severe},
          {"high_mild", outliers.high_mild},
          {"high_severe", outliers.high_severe},
          {"causes", std::move(causes)}};
}

Json sample_json(const GenerationSample& sample) {
  return {{"pass", sample.pass},
          {"ttft_ms", value_or_null(sample.ttft_ms)},
          {"tpot_ms", value_or_null(sample.tpot_ms)},
          {"latency_ms", value_or_null(sample.latency_ms)},
          {"itl_ms", sample.itl_ms},
          {"stolen_share", value_or_null(sample.disturbance.stolen_share)},
          {"waited_share", value_or_null(sample.disturbance.waited_share)},
          {"mhz", value_or_null(sample.disturbance.mhz)}};
}

template <typename Value, typename ToJson>
Json list_json(const std::vector<Value>& values, ToJson to_json) {
  Json list = Json::array();
  for (const Value& value : values) list.push_back(to_json(value));
  return list;
}

Json step_times_json(const StepTimes& times) {
  return {{"products", times.products},
          {"attention", times.attention},
          {"elementwise", times.elementwise},
          {"head_and_sampling", times.head},
          {"allreduce_transfer", times.transfer},
          {"allreduce_wait", times.wait},
          {"gaps", times.gaps}};
}

Json instrumented_json(const InstrumentedSample& sample) {
  return {{"pass", sample.pass}, {"tpot_ms", sample.tpot_ms}, {"ranks", list_json(sample.ranks, step_times_json)}};
}

}  // namespace

Json distribution_json(const Distribution& d) {
  return {{"mean", value_or_null(d.mean)},
          {"p50", value_or_null(d.p50)},
          {"p90", value_or_null(d.p90)},
          {"p95", value_or_null(d.p95)},
          {"p99", value_or_null(d.p99)},
          {"min", value_or_null(d.min)},
          {"max", value_or_null(d.max)},
          {"stddev", value_or_null(d.stddev)},
          {"n", d.n},
          {"ci95",
           {{"mean", interval_json(d.mean_interval)},
            {"p50", interval_json(d.p50_interval)},
            {"p95", interval_json(d.p95_interval)},
            {"p99", interval_json(d.p99_interval)}}},
          {"supported", {{"p95", d.p95_supported}, {"p99", d.p99_supported}}}};
}

namespace {

Json choices_json(const parallel::SumChoices& choices) {
  return {{"graphs", choices.graphs},
          {"choices", list_json(choices.choices,
                                [](const parallel::SumChoices::Choice& choice) {
                                  return Json{{"from_bytes", choice.from_bytes}, {"algorithm", choice.way}};
                                })},
          {"measured", list_json(choices.measured,
                                 [](const parallel::SumChoices::Measured& one) {
                                   return Json{{"bytes", one.bytes}, {"algorithm", one.way}, {"time_us", one.time_us}};
                                 })},
          {"left_out", choices.left_out}};
}

}  // namespace

Json point_json(const PointResult& point, bool samples) {
  // A run that goes on with the second visit needs those of the first. Points read back may have lost theirs.
  const bool with_samples =
      (samples || point.status == PointStatus::kIncomplete) && (!point.samples.empty() || point.generations == 0);
  const auto placement_json = [](topology::Placement placement) { return Json(name_of(placement)); };
  const std::optional<TextCost>& text = point.text_cost;
  return {
      {"kind", kind_name(point.kind)},
      {"status", status_name(point.status)},
      {"tp", point.tp},
      {"pp", point.pp},
      {"placement", name_of(point.group.placement)},
      {"placement_also", list_json(point.group.also, placement_json)},
      {"devices", point.places()},
      {"replicas", point.group.replicas},
      {"batch", point.workload.batch},
      {"prompt_tokens", point.workload.prompt_tokens},
      {"output_tokens", point.workload.output_tokens},
      {"generations", point.generations},
      {"allreduce", text_or_null(point.communicator)},
      {"allreduce_choices", choices_json(point.sum_choices)},
      {"cold_ttft_ms", value_or_null(point.cold_ttft_ms)},
      {"ttft_ms", distribution_json(point.ttft_ms)},
      {"tpot_ms", distribution_json(point.tpot_ms)},
      {"itl_ms", distribution_json(point.itl_ms)},
      {"latency_ms", distribution_json(point.latency_ms)},
      {"tokenise_ms", text ? Json(text->tokenise_ms) : Json(nullptr)},
      {"detokenise_ms", text ? Json(text->detokenise_ms) : Json(nullptr)},
      {"end_to_end_ms", value_or_null(point.end_to_end_ms)},
      {"throughput_tokens_per_s", value_or_null(point.throughput_tokens_per_s)},
      {"requests_per_s", value_or_null(point.requests_per_s)},
      {"mbu_nominal", value_or_null(point.mbu_nominal)},
      {"mbu", spread_json(point.mbu)},
      {"mbu_achievable", spread_json(point.mbu_achievable)},
      {"mbu_useful", spread_json(point.mbu_useful)},
      {"cache_resident", value_or_null(point.cache_resident)},
      {"oversubscribed", point.oversubscribed},
      {"prefill_tflops_per_s", value_or_null(point.prefill_tflops_per_s)},
      {"mfu_prefill", value_or_null(point.mfu_prefill)},
      {"tp_base", value_or_null(point.tp_base)},
      {"speedup", value_or_null(point.speedup)},
      {"efficiency", value_or_null(point.efficiency)},
      {"comm_share", value_or_null(point.comm_share)},
      {"attribution", parts_json(point.attribution, point)},
      {"loss", parts_json(point.loss, point)},
      {"instrumented_tpot_ms", value_or_null(point.instrumented_tpot_ms)},
      {"warm_up", list_json(point.warm_ups, warm_up_json)},
      {"noise",
       {{"low_ms", value_or_null(point.noise.low_ms)},
        {"high_ms", value_or_null(point.noise.high_ms)},
        {"relative", value_or_null(point.noise.relative)},
        {"pass_shift", value_or_null(point.noise.pass_shift)}}},
      {"outliers", outliers_json(point.outliers)},
      {"interference",
       {{"stolen_share", value_or_null(point.disturbance.stolen_share)},
        {"waited_share", value_or_null(point.disturbance.waited_share)},
        {"lowest_mhz", value_or_null(point.disturbance.mhz)},
        {"highest_mhz", value_or_null(point.highest_mhz)}}},
      {"unmet", value_or_null(point.unmet)},
      {"ranks", list_json(point.ranks, [&](const RankFigures& rank) { return rank_json(rank, point); })},
      {"memory_bytes_per_gpu", heaviest_memory_json(point.ranks)},
      {"verdicts", point.verdicts},
      {"rehearsal", rehearsal_json(point.rehearsal)},
      {"samples", with_samples ? list_json(point.samples, sample_json) : Json(nullptr)},
      {"instrumented_samples",
       with_samples && !point.instrumented.empty() ? list_json(point.instrumented, instrumented_json) : Json(nullptr)}};
}

}  // namespace shardscope::runtime
