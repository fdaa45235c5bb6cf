#include "runtime/plan/constants.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/json_field.hpp"
#include "runtime/report/page/assets.hpp"

namespace shardscope::runtime {
namespace {

constexpr int64_t kMostUnits = int64_t{1} << 40;

struct FigureName {
  std::string_view name;
  PublishedFigure figure;
};
constexpr std::array kFigureNames = {FigureName{"tpot_ms", PublishedFigure::kTpotMs},
                                     FigureName{"ttft_ms", PublishedFigure::kTtftMs},
                                     FigureName{"latency_ms", PublishedFigure::kLatencyMs},
                                     FigureName{"requests_per_s", PublishedFigure::kRequestsPerSecond},
                                     FigureName{"mbu_nominal", PublishedFigure::kMbuNominal},
                                     FigureName{"mbu_weights", PublishedFigure::kMbuWeights}};

constexpr std::array kClasses = {topology::TopologyClass::kNvSwitch, topology::TopologyClass::kPcie};

bool has(const Field& field, const char* key) {
  return field.value().is_object() && field.value().contains(key);
}

std::string text_or_none(const Field& field, const char* key) {
  return has(field, key) ? field[key].text() : "";
}

double positive(const Field& field) {
  const double value = field.number();
  if (!(value > 0)) field.refuse("a number above 0 belongs here");
  return value;
}

double share_of(const Field& field) {
  const double value = positive(field);
  if (value >= 1) field.refuse("a share is below 1");
  return value;
}

Origin origin_of(const Field& field) {
  return {.source = field["source"].text(), .date = field["date"].text()};
}

ProductTable product_table(const Field& field) {
  ProductTable table{.gpu = field["gpu"].text(), .points = {}, .origin = origin_of(field)};
  for (const Field& point : field["points"].items()) {
    table.points.push_back({.rows = point["rows"].integer(1, kMostUnits),
                            .columns = point["columns"].integer(1, kMostUnits),
                            .share = share_of(point["share"])});
  }
  if (table.points.size() < 3) field["points"].refuse("too few to fit two constants and see how well");
  return table;
}

Likeness likeness(const Field& field) {
  Likeness like{.gpus = {}, .as = field["as"].text(), .same = field["same"].boolean(), .why = field["why"].text()};
  for (const Field& gpu : field["gpus"].items()) like.gpus.push_back(gpu.text());
  return like;
}

topology::TopologyClass class_of(const Field& field) {
  const auto* const found = std::find_if(kClasses.begin(), kClasses.end(),
                                         [&](topology::TopologyClass one) { return name_of(one) == field.text(); });
  if (found == kClasses.end()) field.refuse("no class that has tables");
  return *found;
}

SumTable sum_table(const Field& field) {
  SumTable table{.gpu = field["gpu"].text(),
                 .topology_class = class_of(field["class"]),
                 .way = field["way"].text(),
                 .ranks = static_cast<int>(field["ranks"].integer(2, parallel::kMaxRanks)),
                 .what = field["what"].text(),
                 .us = {},
                 .origin = origin_of(field)};
  const Field times = field["us"];
  for (const auto& [key, value] : times.value().items()) {
    int64_t bytes = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), bytes);
    if (error != std::errc() || end != key.data() + key.size() || bytes <= 0)
      times.refuse("a key that is no size in bytes");
    table.us[bytes] = positive(times[key]);
  }
  if (table.us.empty()) times.refuse("no times");
  return table;
}

PathPieces path_pieces(const Field& field) {
  return {.path = field["path"].text(),
          .first_us = positive(field["first_us"]),
          .step_us = positive(field["step_us"]),
          .large_first_us = positive(field["large_first_us"]),
          .large_step_us = positive(field["large_step_us"]),
          .small_share = share_of(field["small_share"]),
          .large_share = share_of(field["large_share"]),
          .origin = origin_of(field)};
}

Software software(const Field& field) {
  Software family{.name = field["name"].text(),
                  .what = field["what"].text(),
                  .way = field["way"].text(),
                  .prompt_tokens_at_once = field["prompt_tokens_at_once"].integer(1, kMostUnits),
                  .overhead_us = std::nullopt,
                  .as = text_or_none(field, "as"),
                  .why = text_or_none(field, "why")};
  if (has(field, "overhead_us")) family.overhead_us = field["overhead_us"].number();
  return family;
}

/// A case; what it leaves out is as in `like`.
PublishedCase published_case(const Field& field, const PublishedCase* like) {
  PublishedCase one = like != nullptr ? *like : PublishedCase{};
  const auto told = [&](const char* key) { return like == nullptr || has(field, key); };
  if (told("model")) one.model = field["model"].text();
  if (told("gpu")) one.gpu = field["gpu"].text();
  if (told("tp")) one.tp = static_cast<int>(field["tp"].integer(1, parallel::kMaxRanks));
  if (told("batch")) one.workload.batch = field["batch"].integer(1, kMostUnits);
  if (told("prompt_tokens")) one.workload.prompt_tokens = field["prompt_tokens"].integer(1, kMostUnits);
  if (told("output_tokens")) one.workload.output_tokens = field["output_tokens"].integer(2, kMostUnits);
  return one;
}

PublishedRow published_row(const Field& field) {
  PublishedRow row{.row = field["row"].text(),
                   .published = positive(field["published"]),
                   .software = field["software"].text(),
                   .way = text_or_none(field, "way"),
                   .of = published_case(field, nullptr),
                   .against = std::nullopt,
                   .source = field["source"].text(),
                   .note = text_or_none(field, "note")};
  const std::string& figure = field["figure"].text();
  const auto* const name =
      std::find_if(kFigureNames.begin(), kFigureNames.end(), [&](const FigureName& one) { return one.name == figure; });
  if (name == kFigureNames.end()) field["figure"].refuse("no figure that is known");
  row.figure = name->figure;
  if (has(field, "against")) row.against = published_case(field["against"], &row.of);
  return row;
}

template <typename Value>
std::vector<Value> list_of(const Field& field, Value (*read)(const Field&)) {
  std::vector<Value> values;
  for (const Field& one : field.items()) values.push_back(read(one));
  return values;
}

LargeProducts large_products(const Field& field) {
  return {.gpu = field["gpu"].text(), .share = share_of(field["share"]), .origin = origin_of(field)};
}

}  // namespace

const Software& PlanConstants::software_named(std::string_view name) const {
  const auto found =
      std::find_if(software.begin(), software.end(), [&](const Software& one) { return one.name == name; });
  if (found != software.end()) return *found;
  std::vector<std::string_view> names;
  for (const Software& one : software) names.push_back(one.name);
  throw UserError(fmt::format("no family of software '{}'", name), "--software",
                  fmt::format("use one of: {}", fmt::join(names, ", ")));
}

PlanConstants constants_from(std::string_view json) {
  Json document;
  try {
    document = Json::parse(json);
  } catch (const Json::parse_error& error) {
    throw UserError("no JSON", fmt::format("constants: byte {}", error.byte), "mend the file");
  }
  const Field field(document, "constants");
  PlanConstants constants;
  constants.products = list_of(field["products"], product_table);
  constants.large_products = list_of(field["large_products"], large_products);
  constants.like = list_of(field["like"], likeness);
  constants.attention_us = positive(field["attention"]["layer_us"]);
  constants.attention_origin = origin_of(field["attention"]);
  constants.sums = list_of(field["sums"], sum_table);
  constants.paths = list_of(field["paths"], path_pieces);
  constants.stage_hop_us = positive(field["stage_hop_us"]["value"]);
  constants.stage_hop_origin = origin_of(field["stage_hop_us"]);
  constants.software = list_of(field["software"], software);
  constants.published = list_of(field["published"], published_row);
  return constants;
}

std::vector<topology::KnownTimes> known_collective_times(const PlanConstants& constants) {
  std::vector<topology::KnownTimes> known;
  const auto add = [&](const SumTable& table, const std::string& gpu) {
    known.push_back(
        {.gpu = gpu, .what = fmt::format("{}, {}", table.gpu, table.what), .ranks = table.ranks, .us = table.us});
  };
  for (const SumTable& table : constants.sums) {
    if (table.way != "nccl" || table.topology_class != topology::TopologyClass::kNvSwitch) continue;
    add(table, table.gpu);
    for (const Likeness& like : constants.like) {
      if (!like.same || like.as != table.gpu) continue;
      for (const std::string& gpu : like.gpus) add(table, gpu);
    }
  }
  return known;
}

const PlanConstants& plan_constants() {
  static const PlanConstants constants = constants_from(kPlanConstants.text);
  return constants;
}

}  // namespace shardscope::runtime
