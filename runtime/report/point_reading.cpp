// `results[i]` of a report back to a point: the inverse of point_json.cpp, strict in every field.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "parallel/shard_plan.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/json_field.hpp"
#include "runtime/report/names.hpp"

namespace shardscope::runtime {
namespace {

std::optional<double> number_or_null(const Field& field) {
  return field.optional(&Field::number);
}

int small_integer(const Field& field, int least, int most) {
  return static_cast<int>(field.integer(least, most));
}

Interval interval_from(const Field& field) {
  const std::vector<Field> ends = field.items();
  if (ends.size() != 2) field.refuse("an interval has two ends");
  return {.low = number_or_null(ends[0]), .high = number_or_null(ends[1])};
}

Distribution distribution_from(const Field& field) {
  const Field ci95 = field["ci95"];
  const Field supported = field["supported"];
  return {.n = field["n"].count(),
          .mean = number_or_null(field["mean"]),
          .p50 = number_or_null(field["p50"]),
          .p90 = number_or_null(field["p90"]),
          .p95 = number_or_null(field["p95"]),
          .p99 = number_or_null(field["p99"]),
          .min = number_or_null(field["min"]),
          .max = number_or_null(field["max"]),
          .stddev = number_or_null(field["stddev"]),
          .mean_interval = interval_from(ci95["mean"]),
          .p50_interval = interval_from(ci95["p50"]),
          .p95_interval = interval_from(ci95["p95"]),
          .p99_interval = interval_from(ci95["p99"]),
          .p95_supported = supported["p95"].boolean(),
          .p99_supported = supported["p99"].boolean()};
}

std::optional<Spread> spread_from(const Field& field) {
  if (field.value().is_null()) return std::nullopt;
  return Spread{.min = field["min"].number(), .mean = field["mean"].number(), .max = field["max"].number()};
}

std::optional<Parts> parts_from(const Field& field) {
  if (field.value().is_null()) return std::nullopt;
  Parts parts;
  for (const Part part : kParts) {
    const Field value = field[name_of(part)];
    const bool modelled = part == Part::kAllreduceTransfer || part == Part::kAllreduceWait;  // of a rehearsed row
    parts[part] = modelled && value.value().is_null() ? 0 : value.number();
  }
  return parts;
}

std::optional<Rehearsal> rehearsal_from(const Field& field) {
  if (field.value().is_null()) return std::nullopt;
  return Rehearsal{.rank = small_integer(field["rank"], 0, parallel::kMaxRanks - 1),
                   .co_runners = small_integer(field["co_runners"], 0, parallel::kMaxRanks - 1),
                   .step_collectives_ms = number_or_null(field["step_collectives_ms"]),
                   .prefill_collectives_ms = number_or_null(field["prefill_collectives_ms"]),
                   .collective_model = field["collective_model"].text(),
                   .stated_error = number_or_null(field["stated_error"])};
}

Range range_from(const Field& field) {
  const std::vector<Field> ends = field.items();
  if (ends.size() != 2) field.refuse("a range has two ends");
  return {ends[0].count(), ends[1].count()};
}

/// Of a rank. predicted: what nobody measured is null, and 0 here.
RankFigures rank_from(const Field& field, bool predicted) {
  const auto measured = [&](const char* key) {
    return predicted ? number_or_null(field[key]).value_or(0) : field[key].number();
  };
  const Field bytes = field["bytes_per_step"];
  const Field memory = field["memory_bytes"];
  return {.rank = small_integer(field["rank"], 0, parallel::kMaxRanks - 1),
          .shard = {.query_heads = range_from(field["query_heads"]),
                    .kv_heads = range_from(field["kv_heads"]),
                    .ffn = range_from(field["ffn"]),
                    .vocab = range_from(field["vocab"])},
          .bytes = {.weights = bytes["weights"].number(),
                    .kv_read = bytes["kv_read"].number(),
                    .kv_write = bytes["kv_write"].number(),
                    .replicated = bytes["replicated"].number(),
                    .padded = bytes["padded"].number(),
                    .activations = bytes["activations"].number()},
          .memory = {.weights = memory["weights"].count(),
                     .kv = memory["kv"].count(),
                     .workspace = memory["workspace"].count()},
          .achievable_gb_per_s = measured("achievable_gb_per_s"),
          .achievable_median_gb_per_s = measured("achievable_median_gb_per_s"),
          .bandwidth_drift = measured("bandwidth_drift"),
          .tpot_ms = number_or_null(field["tpot_ms"]),
          .mbu = number_or_null(field["mbu"]),
          .mbu_achievable = number_or_null(field["mbu_achievable"]),
          .mbu_useful = number_or_null(field["mbu_useful"]),
          .waited_share = number_or_null(field["waited_share"]),
          .attribution = parts_from(field["attribution"]),
          .timer_step_ns = number_or_null(field["timer_step_ns"]),
          .load_seconds = measured("load_seconds")};
}

WarmUp warm_up_from(const Field& field) {
  return {.generations = field["generations"].count(),
          .change = number_or_null(field["change"]),
          .steady = field["steady"].optional(&Field::boolean)};
}

Outliers outliers_from(const Field& field) {
  Outliers outliers{.low_mild = field["low_mild"].count(),
                    .low_severe = field["low_severe"].count(),
                    .high_mild = field["high_mild"].count(),
                    .high_severe = field["high_severe"].count()};
  const Field causes = field["causes"];
  for (size_t i = 0; i < kOutlierCauses.size(); ++i) outliers.causes[i] = causes[cause_name(kOutlierCauses[i])].count();
  return outliers;
}

GenerationSample sample_from(const Field& field) {
  GenerationSample sample{.pass = small_integer(field["pass"], 0, 1),
                          .ttft_ms = number_or_null(field["ttft_ms"]),
                          .tpot_ms = number_or_null(field["tpot_ms"]),
                          .latency_ms = number_or_null(field["latency_ms"]),
                          .disturbance = {.stolen_share = number_or_null(field["stolen_share"]),
                                          .waited_share = number_or_null(field["waited_share"]),
                                          .mhz = number_or_null(field["mhz"])}};
  for (const Field& gap : field["itl_ms"].items()) sample.itl_ms.push_back(gap.number());
  return sample;
}

StepTimes step_times_from(const Field& field) {
  return {.products = field["products"].number(),
          .attention = field["attention"].number(),
          .elementwise = field["elementwise"].number(),
          .head = field["head_and_sampling"].number(),
          .transfer = field["allreduce_transfer"].number(),
          .wait = field["allreduce_wait"].number(),
          .gaps = field["gaps"].number()};
}

InstrumentedSample instrumented_from(const Field& field) {
  InstrumentedSample sample{.pass = small_integer(field["pass"], 0, 1), .tpot_ms = field["tpot_ms"].number()};
  for (const Field& rank : field["ranks"].items()) sample.ranks.push_back(step_times_from(rank));
  return sample;
}

FigureKind kind_from(const Field& field) {
  for (const FigureKind kind : kFigureKinds) {
    if (field.text() == kind_name(kind)) return kind;
  }
  field.refuse("an unknown kind (known: measured, rehearsed, predicted, emulated)");
}

PointStatus status_from(const Field& field) {
  const std::string& name = field.text();
  std::string known;
  for (const PointStatus status : kPointStatuses) {
    if (name == status_name(status)) return status;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", status_name(status));
  }
  field.refuse(fmt::format("an unknown status (known: {})", known));
}

topology::Placement placement_from(const Field& field) {
  for (const topology::Placement placement : topology::kPlacements) {
    if (field.text() == name_of(placement)) return placement;
  }
  field.refuse(fmt::format("an unknown placement (known: {})", fmt::join(topology::kPlacementNames, ", ")));
}

topology::PlacedGroup group_from(const Field& point, int tp) {
  topology::PlacedGroup group{.placement = placement_from(point["placement"])};
  for (const Field& also : point["placement_also"].items()) {
    const topology::Placement placement = placement_from(also);
    if (group.stands_for(placement)) also.refuse("a placement that stands here twice");
    group.also.push_back(placement);
  }
  const Field devices = point["devices"];
  for (const Field& device : devices.items()) {
    const int place = small_integer(device, 0, parallel::kMaxRanks - 1);
    if (std::find(group.places.begin(), group.places.end(), place) != group.places.end()) {
      device.refuse("a device that stands here twice");
    }
    group.places.push_back(place);
  }
  if (static_cast<int>(group.places.size()) != tp) devices.refuse("not one device for each rank");
  if (group.placement == topology::Placement::kLinear && group.places != topology::linear_group(tp).places) {
    devices.refuse("a linear group has the first ranks' devices");
  }
  group.replicas = small_integer(point["replicas"], 1, parallel::kMaxRanks);
  return group;
}

std::optional<TextCost> text_cost_from(const Field& point) {
  const std::optional<double> there = number_or_null(point["tokenise_ms"]);
  const std::optional<double> back = number_or_null(point["detokenise_ms"]);
  if (there.has_value() != back.has_value()) point.refuse("tokenise_ms and detokenise_ms are known together");
  if (!there) return std::nullopt;
  return TextCost{.tokenise_ms = *there, .detokenise_ms = *back};
}

/// What PointResult does not keep follows from the rest, or is not measured yet: it must be what we would write.
void check_derived(const Field& point, const PointResult& read) {
  const Json written = point_json(read, false);
  for (const char* key : {"kind", "memory_bytes_per_gpu"}) {
    const Field field = point[key];
    const bool same = nlohmann::json(field.value()) == nlohmann::json(written[key]);  // whatever the order of keys
    if (!same) {
      field.refuse("this does not agree with the other fields, or comes from a newer version");
    }
  }
}

/// A rehearsed row has the rank that ran, and no other row has one that stands for many.
void check_rehearsal(const Field& field, const PointResult& point) {
  const bool told = point.kind == FigureKind::kRehearsed;
  const bool ran = point.status != PointStatus::kOutOfMemory;
  if (told && ran && !point.rehearsal) field["rehearsal"].refuse("a rehearsed result tells what stands behind it");
  if (!point.rehearsal) return;
  if (!told && point.kind != FigureKind::kEmulated) field["kind"].refuse("a rehearsal is no measurement of a group");
  if (point.group.replicas > 1) field["replicas"].refuse("a rehearsal has no replicas");
  if (point.rehearsal->rank >= point.tp) field["rehearsal"].refuse("a rank that the group does not have");
  const bool measured = !point.ranks.empty();
  if (measured && (point.ranks.size() > 1 || point.ranks.front().rank != point.rehearsal->rank)) {
    field["ranks"].refuse("of a rehearsed result only the rank that ran has figures");
  }
}

/// What a collective takes, and how long ranks wait in it, is unknown in rehearsals that do not model it, and nowhere
/// else.
void check_known(const Field& field, const PointResult& point) {
  const auto check = [&](const Field& parts) {
    if (parts.value().is_null()) return;
    for (const Part part : kParts) {
      const Field value = parts[name_of(part)];
      if (value.value().is_null() != point.knows(part)) continue;
      value.refuse(part == Part::kAllreduceTransfer ? "known where the collectives' times are"
                                                    : "known where all ranks of a group ran");
    }
  };
  check(field["attribution"]);
  check(field["loss"]);
  for (const Field& rank : field["ranks"].items()) check(rank["attribution"]);
}

/// 1 where a report does not tell. Nothing that ran has more.
int stages_from(const Field& field) {
  if (!field.value().contains("pp")) return 1;
  const Field stages = field["pp"];
  const int pp = small_integer(stages, 1, parallel::kMaxRanks);
  if (pp > 1 && kind_from(field["kind"]) != FigureKind::kPredicted) stages.refuse("one stage, of all but predictions");
  return pp;
}

/// The parts of a row, and of each rank, are those of its TPOT.
void check_parts(const Field& field, const PointResult& point) {
  const double tpot_ms = point.tpot_ms.p50.value_or(0);
  const auto check = [&](const Field& at, const std::optional<Parts>& parts) {
    if (parts && !(std::abs(parts->sum() - tpot_ms) <= 1e-6 * tpot_ms)) at.refuse("parts that do not sum to TPOT p50");
  };
  check(field["attribution"], point.attribution);
  const std::vector<Field> ranks = field["ranks"].items();
  for (size_t i = 0; i < ranks.size(); ++i) check(ranks[i]["attribution"], point.ranks[i].attribution);
  for (const InstrumentedSample& sample : point.instrumented) {
    const int ran = point.rehearsal ? 1 : point.tp;
    if (static_cast<int>(sample.ranks.size()) != ran) field["instrumented_samples"].refuse("not one entry a rank");
  }
}

/// Times and rates are positive, and the samples that a second visit would join are those of whole generations.
void check_plausible(const Field& field, const PointResult& point) {
  constexpr double kMost = 1e15;  // beyond any time in ms or rate that a run could find
  const auto check = [&](const char* key, const std::optional<double>& value, double most) {
    if (value && !(*value > 0 && *value <= most)) field[key].refuse("not a possible value");
  };
  check("ttft_ms", point.ttft_ms.p50, kMost);
  check("tpot_ms", point.tpot_ms.p50, kMost);
  check("latency_ms", point.latency_ms.p50, kMost);
  check("throughput_tokens_per_s", point.throughput_tokens_per_s, kMost);
  check("speedup", point.speedup, kMost);
  check("efficiency", point.efficiency, kMost);
  check("noise", point.noise.low_ms, kMost);
  check("noise", point.noise.high_ms, kMost);
  if (point.noise.low_ms && point.noise.high_ms && !(*point.noise.low_ms <= *point.noise.high_ms)) {
    field["noise"].refuse("an interval whose ends are the wrong way round");
  }
  if (!point.samples.empty() && static_cast<int64_t>(point.samples.size()) != point.generations) {
    field["samples"].refuse("not as many samples as generations");
  }
  for (const GenerationSample& sample : point.samples) {
    check("samples", sample.ttft_ms, kMost);
    check("samples", sample.tpot_ms, kMost);
    check("samples", sample.latency_ms, kMost);
    const bool whole = static_cast<int64_t>(sample.itl_ms.size()) + 1 == point.workload.output_tokens;
    if (!whole || !sample.latency_ms) field["samples"].refuse("a sample that is no whole generation");
  }
}

template <typename Value>
void read_list(const Field& field, std::vector<Value>& values, Value (*read)(const Field&)) {
  for (const Field& item : field.items()) values.push_back(read(item));
}

parallel::SumChoices choices_from(const Field& field) {
  parallel::SumChoices choices{.graphs = field["graphs"].boolean(), .choices = {}, .measured = {}, .left_out = {}};
  for (const Field& choice : field["choices"].items()) {
    choices.choices.push_back({choice["from_bytes"].count(), choice["algorithm"].text()});
  }
  for (const Field& one : field["measured"].items()) {
    choices.measured.push_back({one["bytes"].count(), one["algorithm"].text(), one["time_us"].number()});
  }
  for (const Field& why : field["left_out"].items()) choices.left_out.push_back(why.text());
  return choices;
}

}  // namespace

PointResult point_from_json(const Json& document, const std::string& where) {
  const Field field(document, where);
  const Field noise = field["noise"];
  const Field interference = field["interference"];
  PointResult point{.kind = kind_from(field["kind"]),
                    .tp = small_integer(field["tp"], 1, parallel::kMaxRanks),
                    .pp = stages_from(field),
                    .workload = {.batch = field["batch"].integer(1, INT64_MAX),
                                 .prompt_tokens = field["prompt_tokens"].count(),
                                 .output_tokens = field["output_tokens"].count()},
                    .status = status_from(field["status"]),
                    .communicator = field["allreduce"].value().is_null() ? "" : field["allreduce"].text(),
                    .sum_choices = choices_from(field["allreduce_choices"]),
                    .ttft_ms = distribution_from(field["ttft_ms"]),
                    .tpot_ms = distribution_from(field["tpot_ms"]),
                    .itl_ms = distribution_from(field["itl_ms"]),
                    .latency_ms = distribution_from(field["latency_ms"]),
                    .cold_ttft_ms = number_or_null(field["cold_ttft_ms"]),
                    .text_cost = text_cost_from(field),
                    .end_to_end_ms = number_or_null(field["end_to_end_ms"]),
                    .throughput_tokens_per_s = number_or_null(field["throughput_tokens_per_s"]),
                    .requests_per_s = number_or_null(field["requests_per_s"]),
                    .mbu_nominal = number_or_null(field["mbu_nominal"]),
                    .mbu = spread_from(field["mbu"]),
                    .mbu_achievable = spread_from(field["mbu_achievable"]),
                    .mbu_useful = spread_from(field["mbu_useful"]),
                    .prefill_tflops_per_s = number_or_null(field["prefill_tflops_per_s"]),
                    .mfu_prefill = number_or_null(field["mfu_prefill"]),
                    .cache_resident = field["cache_resident"].optional(&Field::boolean),
                    .oversubscribed = field["oversubscribed"].boolean(),
                    .speedup = number_or_null(field["speedup"]),
                    .efficiency = number_or_null(field["efficiency"]),
                    .comm_share = number_or_null(field["comm_share"]),
                    .attribution = parts_from(field["attribution"]),
                    .loss = parts_from(field["loss"]),
                    .instrumented_tpot_ms = number_or_null(field["instrumented_tpot_ms"]),
                    .generations = field["generations"].count(),
                    .noise = {.low_ms = number_or_null(noise["low_ms"]),
                              .high_ms = number_or_null(noise["high_ms"]),
                              .relative = number_or_null(noise["relative"]),
                              .pass_shift = number_or_null(noise["pass_shift"])},
                    .outliers = outliers_from(field["outliers"]),
                    .disturbance = {.stolen_share = number_or_null(interference["stolen_share"]),
                                    .waited_share = number_or_null(interference["waited_share"]),
                                    .mhz = number_or_null(interference["lowest_mhz"])},
                    .highest_mhz = number_or_null(interference["highest_mhz"])};
  point.group = group_from(field, point.tp);
  const Field tp_base = field["tp_base"];
  if (!tp_base.value().is_null()) point.tp_base = small_integer(tp_base, 1, parallel::kMaxRanks);
  const Field unmet = field["unmet"];
  if (!unmet.value().is_null()) point.unmet = unmet.text();
  read_list(field["warm_up"], point.warm_ups, warm_up_from);
  const bool predicted = point.kind == FigureKind::kPredicted;
  for (const Field& rank : field["ranks"].items()) point.ranks.push_back(rank_from(rank, predicted));
  point.rehearsal = rehearsal_from(field["rehearsal"]);
  for (const Field& verdict : field["verdicts"].items()) point.verdicts.push_back(verdict.text());
  const Field samples = field["samples"];
  if (!samples.value().is_null()) read_list(samples, point.samples, sample_from);
  const Field instrumented = field["instrumented_samples"];
  if (!instrumented.value().is_null() && samples.value().is_null()) {
    instrumented.refuse("there are no samples with which they alternate");
  }
  if (!instrumented.value().is_null()) read_list(instrumented, point.instrumented, instrumented_from);
  check_derived(field, point);
  check_rehearsal(field, point);
  check_known(field, point);
  check_parts(field, point);
  check_plausible(field, point);
  return point;
}

}  // namespace shardscope::runtime
