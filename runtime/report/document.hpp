// Values to the project's JSON documents (schemas shardscope.report/1, .generate/1, .shards/1). Missing knowledge is
// null, never 0 or absent; every figure has its unit in its name.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/generate/generate.hpp"
#include "runtime/measure/sweep.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/report/environment.hpp"

namespace shardscope::runtime {

using Json = nlohmann::ordered_json;

/// What stands at the top of a report of `scale`.
struct ReportHeader {
  std::string command;
  std::vector<std::string> argv;
  Environment environment;
};

Json distribution_json(const Distribution& distribution);
Json environment_json(const Environment& environment);

/// `model` of every document: architecture, parameters, bytes by tensor class, dtype, quantisation, identity.
Json model_json(const OpenedModel& model);

Json report_json(const ReportHeader& header, const OpenedModel& model, const SweepOptions& options,
                 const std::vector<PointResult>& points, const std::vector<std::string>& advice,
                 const std::vector<std::string>& warnings, bool complete);

/// The sentences that the figures support: per workload, the fastest degree against the smallest that ran. Nothing from
/// points without a closed interval of the median (n < 6) or whose ranks shared cores.
std::vector<std::string> speedup_advice(const std::vector<PointResult>& points);

/// Shard plans of several degrees with memory and bytes per step of every rank (schema shardscope.shards/1).
Json shards_json(const OpenedModel& model, const std::vector<int>& degrees, const Workload& workload,
                 const DecoderOptions& options);

/// The document as text. Bytes that are not UTF-8 (a cut character at the end of a text) are left out.
std::string document_text(const Json& document);

}  // namespace shardscope::runtime
