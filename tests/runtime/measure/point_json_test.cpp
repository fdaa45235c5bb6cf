#include <cmath>
#include <map>
#include <set>

#include <catch2/catch.hpp>
#include <functional>

#include "kernels/base/error.hpp"
#include "runtime/model/json_file.hpp"
#include "runtime/report/document.hpp"
#include "tests/support/points.hpp"

using namespace shardscope;
using namespace shardscope::runtime;
using Pointer = Json::json_pointer;
using test::full_point;

namespace {

/// As a file would bring it back.
Json through_text(const Json& document) {
  return parse_json(document_text(document), "text");
}

/// Every place in a document, containers too, the root not.
void collect_places(const Json& value, const Pointer& at, std::vector<Pointer>& places) {
  if (!at.empty()) places.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, item] : value.items()) collect_places(item, at / key, places);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) collect_places(value[i], at / i, places);
  }
}

std::vector<Pointer> places_of(const Json& document) {
  std::vector<Pointer> places;
  collect_places(document, Pointer(), places);
  return places;
}

std::string refusal(const Json& document) {
  try {
    point_from_json(document, "report.json: results[3]");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("point_json: every figure stands under its own name") {
  const PointResult point = full_point();
  const Json document = point_json(point, true);
  const std::map<std::string, double> expected = {
      {"/tp", 2},
      {"/pp", 1},
      {"/batch", point.workload.batch},
      {"/prompt_tokens", point.workload.prompt_tokens},
      {"/output_tokens", point.workload.output_tokens},
      {"/generations", point.generations},
      {"/cold_ttft_ms", *point.cold_ttft_ms},
      {"/ttft_ms/p50", *point.ttft_ms.p50},
      {"/tpot_ms/mean", *point.tpot_ms.mean},
      {"/tpot_ms/p50", *point.tpot_ms.p50},
      {"/tpot_ms/p90", *point.tpot_ms.p90},
      {"/tpot_ms/p95", *point.tpot_ms.p95},
      {"/tpot_ms/p99", *point.tpot_ms.p99},
      {"/tpot_ms/min", *point.tpot_ms.min},
      {"/tpot_ms/max", *point.tpot_ms.max},
      {"/tpot_ms/stddev", *point.tpot_ms.stddev},
      {"/tpot_ms/n", point.tpot_ms.n},
      {"/tpot_ms/ci95/mean/0", *point.tpot_ms.mean_interval.low},
      {"/tpot_ms/ci95/p50/0", *point.tpot_ms.p50_interval.low},
      {"/tpot_ms/ci95/p50/1", *point.tpot_ms.p50_interval.high},
      {"/tpot_ms/ci95/p95/1", *point.tpot_ms.p95_interval.high},
      {"/tpot_ms/ci95/p99/0", *point.tpot_ms.p99_interval.low},
      {"/itl_ms/p99", *point.itl_ms.p99},
      {"/latency_ms/p50", *point.latency_ms.p50},
      {"/tokenise_ms", point.text_cost->tokenise_ms},
      {"/detokenise_ms", point.text_cost->detokenise_ms},
      {"/end_to_end_ms", *point.end_to_end_ms},
      {"/throughput_tokens_per_s", *point.throughput_tokens_per_s},
      {"/requests_per_s", *point.requests_per_s},
      {"/mbu_nominal", *point.mbu_nominal},
      {"/mbu/min", point.mbu->min},
      {"/mbu/mean", point.mbu->mean},
      {"/mbu/max", point.mbu->max},
      {"/mbu_achievable/mean", point.mbu_achievable->mean},
      {"/mbu_useful/mean", point.mbu_useful->mean},
      {"/prefill_tflops_per_s", *point.prefill_tflops_per_s},
      {"/mfu_prefill", *point.mfu_prefill},
      {"/tp_base", 1},
      {"/speedup", *point.speedup},
      {"/efficiency", *point.efficiency},
      {"/warm_up/0/generations", point.warm_ups[0].generations},
      {"/warm_up/1/change", *point.warm_ups[1].change},
      {"/noise/low_ms", *point.noise.low_ms},
      {"/noise/high_ms", *point.noise.high_ms},
      {"/noise/relative", *point.noise.relative},
      {"/noise/pass_shift", *point.noise.pass_shift},
      {"/outliers/low_mild", point.outliers.low_mild},
      {"/outliers/low_severe", point.outliers.low_severe},
      {"/outliers/high_mild", point.outliers.high_mild},
      {"/outliers/high_severe", point.outliers.high_severe},
      {"/outliers/causes/stolen", point.outliers.causes[0]},
      {"/outliers/causes/waited", point.outliers.causes[1]},
      {"/outliers/causes/slow_clock", point.outliers.causes[2]},
      {"/outliers/causes/unexplained", point.outliers.causes[3]},
      {"/interference/stolen_share", *point.disturbance.stolen_share},
      {"/interference/waited_share", *point.disturbance.waited_share},
      {"/interference/lowest_mhz", *point.disturbance.mhz},
      {"/interference/highest_mhz", *point.highest_mhz},
      {"/ranks/1/rank", 1},
      {"/ranks/1/query_heads/0", point.ranks[1].shard.query_heads.begin},
      {"/ranks/1/kv_heads/1", point.ranks[1].shard.kv_heads.end},
      {"/ranks/1/ffn/0", point.ranks[1].shard.ffn.begin},
      {"/ranks/1/vocab/1", point.ranks[1].shard.vocab.end},
      {"/ranks/1/bytes_per_step/weights", point.ranks[1].bytes.weights},
      {"/ranks/1/bytes_per_step/kv_read", point.ranks[1].bytes.kv_read},
      {"/ranks/1/bytes_per_step/kv_write", point.ranks[1].bytes.kv_write},
      {"/ranks/1/bytes_per_step/replicated", point.ranks[1].bytes.replicated},
      {"/ranks/1/bytes_per_step/padded", point.ranks[1].bytes.padded},
      {"/ranks/1/bytes_per_step/activations", point.ranks[1].bytes.activations},
      {"/ranks/1/memory_bytes/weights", point.ranks[1].memory.weights},
      {"/ranks/1/memory_bytes/kv", point.ranks[1].memory.kv},
      {"/ranks/1/memory_bytes/workspace", point.ranks[1].memory.workspace},
      {"/ranks/1/achievable_gb_per_s", point.ranks[1].achievable_gb_per_s},
      {"/ranks/1/achievable_median_gb_per_s", point.ranks[1].achievable_median_gb_per_s},
      {"/ranks/1/bandwidth_drift", point.ranks[1].bandwidth_drift},
      {"/ranks/1/tpot_ms", *point.ranks[1].tpot_ms},
      {"/ranks/1/mbu", *point.ranks[1].mbu},
      {"/ranks/1/mbu_achievable", *point.ranks[1].mbu_achievable},
      {"/ranks/1/mbu_useful", *point.ranks[1].mbu_useful},
      {"/ranks/1/waited_share", *point.ranks[1].waited_share},
      {"/ranks/1/timer_step_ns", *point.ranks[1].timer_step_ns},
      {"/ranks/1/load_seconds", point.ranks[1].load_seconds},
      {"/memory_bytes_per_gpu/weights", point.ranks[1].memory.weights},  // the heavier of the two
      {"/comm_share", *point.comm_share},
      {"/instrumented_tpot_ms", *point.instrumented_tpot_ms},
      {"/instrumented_samples/1/pass", 1},
      {"/instrumented_samples/1/tpot_ms", point.instrumented[1].tpot_ms},
      {"/instrumented_samples/1/ranks/1/products", point.instrumented[1].ranks[1].products},
      {"/instrumented_samples/1/ranks/1/attention", point.instrumented[1].ranks[1].attention},
      {"/instrumented_samples/1/ranks/1/elementwise", point.instrumented[1].ranks[1].elementwise},
      {"/instrumented_samples/1/ranks/1/head_and_sampling", point.instrumented[1].ranks[1].head},
      {"/instrumented_samples/1/ranks/1/allreduce_transfer", point.instrumented[1].ranks[1].transfer},
      {"/instrumented_samples/1/ranks/1/allreduce_wait", point.instrumented[1].ranks[1].wait},
      {"/instrumented_samples/1/ranks/1/gaps", point.instrumented[1].ranks[1].gaps},
      {"/samples/1/pass", 1},
      {"/samples/1/ttft_ms", *point.samples[1].ttft_ms},
      {"/samples/1/tpot_ms", *point.samples[1].tpot_ms},
      {"/samples/1/latency_ms", *point.samples[1].latency_ms},
      {"/samples/1/itl_ms/0", point.samples[1].itl_ms[0]},
      {"/samples/1/stolen_share", *point.samples[1].disturbance.stolen_share},
      {"/samples/1/waited_share", *point.samples[1].disturbance.waited_share},
      {"/samples/1/mhz", *point.samples[1].disturbance.mhz},
  };
  for (const auto& [path, value] : expected) {
    CAPTURE(path);
    const Json& field = document.at(Pointer(path));
    REQUIRE(field.is_number());
    CHECK(field.get<double>() == value);
  }
  CHECK(document["kind"] == "measured");
  CHECK(document["status"] == "ok");
  CHECK(document["allreduce"] == "shm");
  CHECK(document["devices"] == Json::array({0, 1}));
  CHECK(document["cache_resident"] == false);
  CHECK(document["oversubscribed"] == true);
  CHECK(document["tpot_ms"]["supported"] == Json{{"p95", true}, {"p99", false}});
  CHECK(document["warm_up"][0]["steady"] == true);
  CHECK(document["warm_up"][1]["steady"] == false);
  CHECK(document["unmet"] == "the noise bound");
  CHECK(document["verdicts"] == Json::array({"noise: too much", "outliers: some"}));
  CHECK(document["placement"] == "linear");
  CHECK(document["placement_also"] == Json::array());
  for (const Part part : kParts) {
    CHECK(document["attribution"][std::string(name_of(part))] == (*point.attribution)[part]);
    CHECK(document["loss"][std::string(name_of(part))] == (*point.loss)[part]);
    CHECK(document["ranks"][1]["attribution"][std::string(name_of(part))] == (*point.ranks[1].attribution)[part]);
  }
}

TEST_CASE("point_json: memory_bytes_per_gpu is that of one rank, the heaviest") {
  PointResult point = full_point();
  point.ranks[0].memory = {.weights = 100, .kv = 50, .workspace = 1};
  point.ranks[1].memory = {.weights = 90, .kv = 20, .workspace = 40};
  CHECK(point_json(point, false)["memory_bytes_per_gpu"] == Json{{"weights", 100}, {"kv", 50}, {"workspace", 1}});
  point.ranks[1].memory.workspace = 42;
  const Json document = point_json(point, false);
  CHECK(document["memory_bytes_per_gpu"] == Json{{"weights", 90}, {"kv", 20}, {"workspace", 42}});
  CHECK_NOTHROW(point_from_json(document, "text"));
}

TEST_CASE("point_json: no figure stands in two places") {
  Json document = point_json(full_point(), true);
  for (const char* derived : {"pp", "devices", "memory_bytes_per_gpu", "tp_base", "tp"}) document.erase(derived);
  std::set<double> seen;
  for (const Pointer& place : places_of(document)) {
    const Json& value = document.at(place);
    if (!value.is_number() || value.get<double>() <= 1) continue;  // ranks and passes count from 0
    CAPTURE(place.to_string());
    CHECK(seen.insert(value.get<double>()).second);
  }
  CHECK(seen.size() > 150);
}

TEST_CASE("point_json: nothing known is null, and no key is absent") {
  const Json full = point_json(full_point(), true);
  const Json empty = point_json(PointResult{.tp = 1}, false);
  for (const auto& [key, value] : full.items()) {
    CAPTURE(key);
    CHECK(empty.contains(key));
  }
  for (const char* key : {"allreduce",
                          "cold_ttft_ms",
                          "tokenise_ms",
                          "detokenise_ms",
                          "end_to_end_ms",
                          "throughput_tokens_per_s",
                          "requests_per_s",
                          "mbu_nominal",
                          "mbu",
                          "mbu_achievable",
                          "mbu_useful",
                          "cache_resident",
                          "prefill_tflops_per_s",
                          "mfu_prefill",
                          "tp_base",
                          "speedup",
                          "efficiency",
                          "unmet",
                          "memory_bytes_per_gpu",
                          "samples"}) {
    CAPTURE(key);
    CHECK(empty.at(key).is_null());
  }
  CHECK(empty["tpot_ms"]["p50"].is_null());
  CHECK(empty["tpot_ms"]["ci95"]["p50"] == Json::array({nullptr, nullptr}));
  CHECK(empty["interference"]["lowest_mhz"].is_null());
  CHECK(empty["noise"]["relative"].is_null());
}

TEST_CASE("point_from_json: a point survives the way through a file") {
  const auto survives = [](const PointResult& point, bool samples) {
    const Json document = point_json(point, samples);
    PointResult back = point_from_json(through_text(document), "text");
    CHECK(point_json(back, samples) == document);
    return back;
  };
  SECTION("all known") {
    const PointResult back = survives(full_point(), true);
    CHECK(back.samples.size() == 2);
    CHECK(back.tpot_ms.p50 == full_point().tpot_ms.p50);
    CHECK(back.ranks[1].shard == full_point().ranks[1].shard);
  }
  SECTION("without samples") {
    CHECK(survives(full_point(), false).samples.empty());
  }
  SECTION("nothing known") {
    survives(PointResult{.tp = 1}, false);
    survives(PointResult{.tp = 1}, true);
  }
  SECTION("every status") {
    for (const PointStatus status :
         {PointStatus::kOk, PointStatus::kOutOfMemory, PointStatus::kInvalid, PointStatus::kIncomplete}) {
      PointResult point = full_point();
      point.status = status;
      CHECK(survives(point, true).status == status);
    }
  }
  SECTION("a group at other places") {
    PointResult point = full_point();
    point.group = {.placement = topology::Placement::kBest, .also = {topology::Placement::kWorst}, .places = {2, 0}};
    const PointResult back = survives(point, true);
    CHECK(back.group == point.group);
    CHECK(point_json(point, true)["devices"] == Json::array({2, 0}));
    CHECK(point_json(point, true)["placement"] == "best");
    CHECK(point_json(point, true)["placement_also"] == Json::array({"worst"}));
  }
  SECTION("numbers that no short decimal gives") {
    PointResult point = full_point();
    point.speedup = 1.0 / 3;
    point.ranks[0].bytes.kv_read = std::nextafter(1e9, 2e9);
    const PointResult back = survives(point, true);
    CHECK(*back.speedup == *point.speedup);
    CHECK(back.ranks[0].bytes.kv_read == point.ranks[0].bytes.kv_read);
  }
}

TEST_CASE("point_from_json: pipeline stages are of predictions, and one where a report does not tell") {
  PointResult point = test::a_point(2, 5);
  point.kind = FigureKind::kPredicted;
  point.pp = 4;
  Json document = point_json(point, false);
  CHECK(point_from_json(through_text(document), "text").pp == 4);
  document.erase("pp");
  CHECK(point_from_json(through_text(document), "text").pp == 1);
}

TEST_CASE("point_from_json: fields that it does not know are left aside") {
  Json document = point_json(full_point(), true);
  document["from_a_later_version"] = 1;
  document["ranks"][0]["colour"] = "blue";
  CHECK_NOTHROW(point_from_json(document, "text"));
}

TEST_CASE("point_from_json: each missing key is refused") {
  const Json document = point_json(full_point(), true);
  int64_t removed = 0;
  for (const Pointer& place : places_of(document)) {
    Json changed = document;
    Json& parent = changed[place.parent_pointer()];
    if (!parent.is_object() || place.to_string() == "/pp") continue;  // one stage where none is told
    parent.erase(place.back());
    CAPTURE(place.to_string());
    CHECK(refusal(changed).find("report.json: results[3]") != std::string::npos);
    // What follows from the ranks is compared as a whole.
    const bool derived = place.parent_pointer().to_string() == "/memory_bytes_per_gpu";
    CHECK(refusal(changed).find(derived ? "memory_bytes_per_gpu" : place.back()) != std::string::npos);
    ++removed;
  }
  CHECK(removed > 150);
}

TEST_CASE("point_from_json: each value of another type is refused, or is null where nothing may be known") {
  const Json document = point_json(full_point(), true);
  const std::vector<Json> others = {nullptr, true, 7, 7.5, "text", Json::array(), Json::object()};
  const auto kind = [](const Json& value) { return value.is_number() ? "number" : value.type_name(); };
  int64_t refused = 0;
  for (const Pointer& place : places_of(document)) {
    const Json& value = document.at(place);
    for (const Json& other : others) {
      const bool fraction = value.is_number_integer() && other.is_number_float();
      if (std::string(kind(value)) == kind(other) && !fraction) continue;
      Json changed = document;
      changed[place] = other;
      CAPTURE(place.to_string(), other.dump());
      if (!refusal(changed).empty()) {
        ++refused;
        continue;
      }
      CHECK(other.is_null());  // else the type was taken for another
      CHECK(point_json(point_from_json(changed, "text"), !changed["samples"].is_null()) == changed);
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("point_from_json: parts that do not sum to TPOT, and instruments of other ranks, are refused") {
  PointResult point = full_point();
  (*point.attribution)[Part::kGaps] += 1;
  CHECK(
      refusal(point_json(point, true)).find("parts that do not sum to TPOT p50, report.json: results[3].attribution") !=
      std::string::npos);
  point = full_point();
  (*point.ranks[1].attribution)[Part::kGaps] += 1;
  CHECK(refusal(point_json(point, true)).find("results[3].ranks[1].attribution") != std::string::npos);
  point = full_point();
  point.instrumented[1].ranks.pop_back();
  CHECK(refusal(point_json(point, true)).find("not one entry a rank") != std::string::npos);
}

TEST_CASE("point_from_json: numbers that are not finite, too large or negative, and unknown names are refused") {
  const Json document = point_json(full_point(), true);
  for (const Pointer& place : places_of(document)) {
    if (!document.at(place).is_number_float()) continue;
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
      Json changed = document;
      changed[place] = value;
      CAPTURE(place.to_string(), value);
      CHECK(refusal(changed).find("not finite") != std::string::npos);
    }
  }
  const auto with = [&](const char* path, const Json& value) {
    Json changed = document;
    changed[Pointer(path)] = value;
    return refusal(changed);
  };
  CHECK(with("/tp", 2'000'000'000).find("2000000000 is not from 1 to 1024, report.json: results[3].tp") !=
        std::string::npos);
  CHECK(with("/tp", 0) != "");
  CHECK(with("/generations", -1) != "");
  CHECK(with("/generations", UINT64_MAX) != "");
  CHECK(with("/batch", 0) != "");
  CHECK(with("/ranks/0/rank", 1024) != "");
  CHECK(with("/samples/0/pass", 2) != "");
  CHECK(with("/status", "failed").find("known: ok, out_of_memory, invalid, incomplete") != std::string::npos);
  CHECK(with("/kind", "rehearsed") != "");
  CHECK(with("/devices", Json::array({0, 3})).find("a linear group") != std::string::npos);
  CHECK(with("/devices", Json::array({0, 0})).find("twice") != std::string::npos);
  CHECK(with("/devices", Json::array({0})).find("each rank") != std::string::npos);
  CHECK(with("/placement", "nearest").find("known: linear, best, worst") != std::string::npos);
  CHECK(with("/placement_also", Json::array({"linear"})).find("twice") != std::string::npos);
  CHECK(with("/memory_bytes_per_gpu/kv", 1) != "");
  CHECK(with("/pp", 2).find("one stage, of all but predictions, report.json: results[3].pp") != std::string::npos);
  CHECK(with("/pp", 0) != "");
  CHECK(with("/tpot_ms/ci95/p50", Json::array({1, 2, 3})) != "");
  CHECK(with("/tpot_ms/p50", "12").find("a number is expected, not \"12\", report.json: results[3].tpot_ms.p50") !=
        std::string::npos);
  CHECK(with("/tokenise_ms", nullptr).find("known together") != std::string::npos);
}

TEST_CASE("point_from_json: what no run can have measured is refused") {
  const Json whole = point_json(test::a_point(2, 5), false);
  const auto refused = [&](const std::function<void(Json&)>& change) {
    Json document = whole;
    change(document);
    try {
      point_from_json(document, "r.json");
    } catch (const UserError&) {
      return true;
    }
    return false;
  };
  CHECK_FALSE(refused([](Json&) {}));
  for (const double bad : {-5.0, 0.0, 1e308}) {
    CHECK(refused([&](Json& d) { d["tpot_ms"]["p50"] = bad; }));
    CHECK(refused([&](Json& d) { d["ttft_ms"]["p50"] = bad; }));
    CHECK(refused([&](Json& d) { d["speedup"] = bad; }));
    CHECK(refused([&](Json& d) { d["noise"]["low_ms"] = bad; }));
  }
  CHECK(refused([](Json& d) { d["noise"]["high_ms"] = 4.9; }));  // below low_ms
  const Json sample = {
      {"pass", 0},           {"ttft_ms", 5.0},          {"tpot_ms", 5.0},          {"latency_ms", 20.0},
      {"itl_ms", {5, 5, 5}}, {"stolen_share", nullptr}, {"waited_share", nullptr}, {"mhz", nullptr}};
  CHECK_FALSE(refused([&](Json& d) { d["samples"] = Json(6, sample); }));
  CHECK(refused([&](Json& d) { d["samples"] = Json(7, sample); }));
  Json negative = sample;
  negative["tpot_ms"] = -5;
  CHECK(refused([&](Json& d) { d["samples"] = Json(6, negative); }));
  Json torn = sample;
  torn["itl_ms"] = Json::array();
  CHECK(refused([&](Json& d) { d["samples"] = Json(6, torn); }));
}
