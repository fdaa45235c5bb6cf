// What plan reckons with: public measurements, each with its source and date, and what others published about whole
// systems. constants.json holds them; nothing here is fitted (calibration.hpp does that).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/measure/traffic.hpp"
#include "topology/collective_times.hpp"
#include "topology/topology.hpp"

namespace shardscope::runtime {

struct Origin {
  std::string source, date;
};

/// A matrix product with one token, bf16: the share of the data sheet's bandwidth at which its weights were read.
struct ProductPoint {
  int64_t rows = 0, columns = 0;
  double share = 0;
};
struct ProductTable {
  std::string gpu;  // a row of device_peaks()
  std::vector<ProductPoint> points;
  Origin origin;
};

/// Share of the data sheet's dense peak that products of many tokens reach.
struct LargeProducts {
  std::string gpu;
  double share = 0;
  Origin origin;
};

/// GPUs without tables of their own, and whose are taken.
struct Likeness {
  std::vector<std::string> gpus;
  std::string as;
  bool same = false;  // the same chip: as good as a table of its own
  std::string why;
};

/// An all-reduce by message size, bf16, in a CUDA graph, one process per GPU.
struct SumTable {
  std::string gpu;
  topology::TopologyClass topology_class = topology::TopologyClass::kUnknown;
  std::string way;  // "nccl", "one-shot"
  int ranks = 0;
  std::string what;
  std::map<int64_t, double> us;  // by bytes, as measured
  Origin origin;
  bool one_process = false;  // one process drives all GPUs, and its launches are in these times: only of a user's own
};

/// An all-reduce where no table is, in two pieces: small messages take first + 2 (n - 1) step, large ones the same with
/// their own constants, and each moves 2 (n - 1) / n of the message at its share of the link.
struct PathPieces {
  std::string path;  // of GroupLinks
  double first_us = 0, step_us = 0;
  double large_first_us = 0, large_step_us = 0;
  double small_share = 0, large_share = 0;
  Origin origin;
};

/// A family of software: what a layer of a decode step takes beside products, attention and all-reduces.
struct Software {
  std::string name, what;
  std::string way;                    // of its all-reduces
  int64_t prompt_tokens_at_once = 0;  // of a batch's prompts in one forward pass
  std::optional<double> overhead_us;  // by definition; else fitted to what was published about it
  std::string as, why;                // another family whose overhead is taken, and why; empty: its own
};

/// One configuration of a published figure.
struct PublishedCase {
  std::string model, gpu;
  int tp = 1;
  Workload workload;
};

enum class PublishedFigure : uint8_t { kTpotMs, kTtftMs, kLatencyMs, kRequestsPerSecond, kMbuNominal, kMbuWeights };

struct PublishedRow {
  std::string row;
  PublishedFigure figure = PublishedFigure::kTpotMs;
  double published = 0;
  std::string software;
  std::string way;  // empty: the family's
  PublishedCase of;
  std::optional<PublishedCase> against;  // the figure is a ratio: of / against
  std::string source, note;
};

struct PlanConstants {
  std::vector<ProductTable> products;
  std::vector<LargeProducts> large_products;
  std::vector<Likeness> like;
  double attention_us = 0;  // of one layer, at least
  Origin attention_origin;
  std::vector<SumTable> sums;
  std::vector<PathPieces> paths;
  double stage_hop_us = 0;  // from one pipeline stage to the next
  Origin stage_hop_origin;
  std::vector<Software> software;
  std::vector<PublishedRow> published;

  /// Throws UserError, which lists the known, where there is none.
  const Software& software_named(std::string_view name) const;
};

/// Its tables of NCCL behind NVSwitches, for each GPU that they are of.
std::vector<topology::KnownTimes> known_collective_times(const PlanConstants& constants);

/// Those of this program.
const PlanConstants& plan_constants();

/// Throws UserError naming the field of a text that is damaged.
PlanConstants constants_from(std::string_view json);

}  // namespace shardscope::runtime
