// Values to the project's JSON documents (schemas shardscope.report/1, .shards/1) and back. Missing knowledge is null,
// never 0 or absent; every figure has its unit in its name. schema/ describes each document.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/measure/sweep.hpp"
#include "runtime/model/open_model.hpp"
#include "runtime/report/environment.hpp"

namespace shardscope::runtime {

using Json = nlohmann::ordered_json;

/// What stands at the top of a report.
struct ReportHeader {
  std::string command;
  std::vector<std::string> argv;
  Json options = Json::object();  // every option in effect: name to text, number or truth value
  Environment environment;
  Json topology = nullptr;  // a document shardscope.topology/1, of rank 0's host
  bool samples = false;     // --samples: keep every generation's raw figures
};

/// What was measured and said about it.
struct ReportBody {
  std::vector<PointResult> points;
  std::vector<std::string> advice;
  std::vector<std::string> warnings;
  bool complete = false;
};

// point_json.cpp, point_reading.cpp
Json distribution_json(const Distribution& distribution);
Json point_json(const PointResult& point, bool samples);
/// The inverse of point_json; samples are read where they are. Throws UserError naming `where` and the field that is
/// missing, of the wrong type or at odds with the others. Fields that it does not know are left aside.
PointResult point_from_json(const Json& document, const std::string& where);

// environment_json.cpp
Json environment_json(const Environment& environment);

// document.cpp
/// `model` of every document: architecture, parameters, bytes by tensor class, dtype, quantisation, identity.
Json model_json(const OpenedModel& model, const kernels::Precision& precision);
Json workload_json(const SweepOptions& options);
Json protocol_json(const SweepOptions& options);
Json report_json(const ReportHeader& header, const OpenedModel& model, const SweepOptions& options,
                 const ReportBody& body);

/// Shard plans of several degrees with memory and bytes per step of every rank (schema shardscope.shards/1).
Json shards_json(const OpenedModel& model, const std::vector<int>& degrees, const Workload& workload,
                 const DecoderOptions& options);

/// The document as text. Bytes that are not UTF-8 (a cut character at the end of a text) are left out.
std::string document_text(const Json& document);

}  // namespace shardscope::runtime
