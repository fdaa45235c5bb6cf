#include "runtime/plan/calibration_files.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "runtime/model/named.hpp"
#include "runtime/plan/group_links.hpp"
#include "runtime/plan/published.hpp"
#include "runtime/report/compare/reports.hpp"
#include "runtime/report/json_field.hpp"
#include "runtime/report/table_text.hpp"
#include "topology/gpu_names.hpp"
#include "topology/read/reading.hpp"

namespace shardscope::runtime {
namespace {

constexpr double kBytesPerUsOfGb = 1e3;

/// Tables of one file, and how they were run.
struct FileTables {
  std::vector<SumTable> tables;
  std::optional<bool> one_process;
  std::vector<std::string> notes;
};

constexpr const char* kWhatToGive =
    "give a report of bench or scale, a document of comm, or the output of all_reduce_perf";

Json parsed(const CalibrationText& file) {
  return Json::parse(file.text, nullptr, /*allow_exceptions=*/false);
}

std::string schema_of(const Json& document) {
  if (!document.is_object() || !document.contains("schema") || !document["schema"].is_string()) return "";
  return document["schema"].get<std::string>();
}

SumTable& table_for(std::vector<SumTable>& tables, int ranks, const std::string& way, const std::string& file) {
  for (SumTable& table : tables) {
    if (table.ranks == ranks && table.way == way) return table;
  }
  tables.push_back({.gpu = "",
                    .topology_class = {},
                    .way = way,
                    .ranks = ranks,
                    .what = fmt::format("measured: {}", file),
                    .us = {},
                    .origin = {}});
  return tables.back();
}

void keep_fastest(std::map<int64_t, double>& us, int64_t bytes, double time_us) {
  const auto [entry, is_new] = us.emplace(bytes, time_us);
  if (!is_new) entry->second = std::min(entry->second, time_us);
}

/// comm's document: of each size the fastest way, replayed from graphs where it was measured so.
FileTables comm_tables(const Json& document, const std::string& file) {
  const Field field(document, file);
  if (!field["complete"].boolean()) field["complete"].refuse("the run was not complete");
  FileTables result{.tables = {}, .one_process = false};  // comm has a process for each GPU
  const std::vector<Field> rows = field["rows"].items();
  const bool graphs = std::any_of(rows.begin(), rows.end(), [](const Field& row) { return row["graph"].boolean(); });
  for (const Field& row : rows) {
    if (row["kind"].text() != "measured") row["kind"].refuse("only what was measured calibrates a prediction");
    const std::string& way = row["algorithm"].text();
    if (way == "shm" || way == "mpi") row["algorithm"].refuse("this is a sum of CPU ranks, and a plan is about GPUs");
    const std::optional<double> us = row["time_us"]["p50"].optional(&Field::number);
    const auto ranks = static_cast<int>(row["tp"].integer(1, parallel::kMaxRanks));
    if (ranks == 1 || row["graph"].boolean() != graphs || !us || !(*us > 0) || row["wrong"].count() > 0) continue;
    keep_fastest(table_for(result.tables, ranks, way == "nccl" ? "nccl" : "one-shot", file).us,
                 row["bytes"].integer(1, INT64_MAX), *us);
  }
  if (result.tables.empty()) throw UserError("no all-reduce of two or more ranks that was right", file, kWhatToGive);
  if (!graphs) result.notes.push_back(fmt::format("{}: not replayed from graphs: launches are in these times", file));
  return result;
}

FileTables other_tables(const CalibrationText& file) {
  const topology::Topology topology = topology::read_topology({.text = file.text, .file = file.file});
  FileTables result;
  for (const topology::Measurement& figure : topology.measurements) {
    const bool sum = figure.kind == topology::Measurement::Kind::kAllReduce;
    if (!sum || figure.gpu_count.value_or(0) < 2 || figure.bytes.value_or(0) <= 0) continue;
    std::optional<double> us = figure.time_us;
    if (!us && figure.gb_per_s && *figure.gb_per_s > 0)
      us = static_cast<double>(*figure.bytes) / *figure.gb_per_s / kBytesPerUsOfGb;
    if (!us || !(*us > 0)) continue;
    keep_fastest(table_for(result.tables, *figure.gpu_count, "nccl", file.file).us, *figure.bytes, *us);
    if (!figure.one_process) continue;
    if (result.one_process && *result.one_process != *figure.one_process) {
      throw UserError("some of these all-reduces were launched by one process for all GPUs, some by one for each",
                      file.file, "leave out those of one kind: launches are in the former's times");
    }
    result.one_process = figure.one_process;
  }
  if (result.tables.empty()) {
    throw UserError("no all-reduce times in this file", file.file, kWhatToGive);
  }
  return result;
}

/// A line a + b x bytes through the points from `least` to `most` bytes, by relative least squares.
struct Line {
  double us = 0, us_per_byte = 0;
  double worst = 0;  // of |fitted / measured - 1|
};
std::optional<Line> line_of(const std::map<int64_t, double>& us, int64_t least, int64_t most) {
  double ww = 0, wx = 0, xx = 0, w = 0, x = 0;  // weights 1 / time, abscissae bytes / time
  int count = 0;
  for (const auto& [bytes, time] : us) {
    if (bytes < least || bytes > most) continue;
    const double a = 1 / time;
    const double b = static_cast<double>(bytes) / time;
    ww += a * a, wx += a * b, xx += b * b, w += a, x += b;
    ++count;
  }
  const double determinant = ww * xx - wx * wx;
  if (count < 3 || !(determinant > 1e-12 * ww * xx)) return std::nullopt;
  Line line{.us = (w * xx - x * wx) / determinant, .us_per_byte = (ww * x - wx * w) / determinant};
  for (const auto& [bytes, time] : us) {
    if (bytes < least || bytes > most) continue;
    line.worst = std::max(line.worst, std::abs((line.us + line.us_per_byte * static_cast<double>(bytes)) / time - 1));
  }
  return line;
}

std::string piece_text(const char* name, const std::optional<Line>& line, int ranks) {
  if (!line) return fmt::format("{}: fewer than three sizes", name);
  const double bus = line->us_per_byte > 0 ? 2.0 * (ranks - 1) / ranks / line->us_per_byte / kBytesPerUsOfGb : 0;
  return fmt::format("{}: {:.1f} us{}, residuals to {:.0f} %", name, line->us,
                     bus > 0 ? fmt::format(" + bytes at {:.0f} GB/s of bus bandwidth", bus) : "", 100 * line->worst);
}

/// How far two pieces are from a table, and what making it non-decreasing changed.
std::string table_note(const SumTable& table) {
  constexpr int64_t kSmallPiece = 64 << 10;
  constexpr int64_t kLargePiece = 1 << 20;
  double changed = 0;
  for (const auto& [bytes, us] : topology::never_falling(table.us))
    changed = std::max(changed, 1 - us / table.us.at(bytes));
  return fmt::format(
      "{}: all-reduce of {} ranks ({}), {} sizes from {} B; made non-decreasing: by {:.0f} % at most; {}; {}",
      table.what, table.ranks, table.way, table.us.size(), table.us.begin()->first, 100 * changed,
      piece_text("to 64 KiB", line_of(table.us, 1, kSmallPiece), table.ranks),
      piece_text("from 1 MiB", line_of(table.us, kLargePiece, INT64_MAX), table.ranks));
}

/// Rows of all reports that can be fitted, with what predicts them.
struct MeasuredRow {
  std::string name;
  PublishedCase of;
  double tpot_ms = 0;
};

/// Throws UserError where the report's ranks did not work on the machine's kind of GPU.
void check_devices(const Field& document, const std::string& file, const topology::DevicePeaks& gpu) {
  const Field devices = document["environment"]["devices"];
  if (!devices.value().is_array() || devices.value().empty()) {
    throw UserError("these ranks worked on CPUs, and a plan is about GPUs", file, "give a report of a run on GPUs");
  }
  for (const Field& device : devices.items()) {
    const std::string name = device["name"].value().is_string() ? device["name"].text() : "";
    const topology::DevicePeaks* is = topology::peaks_of_name(name);
    if (is != nullptr && is->name != gpu.name) {
      throw UserError(fmt::format("measured on {}, and the plan is about {}", is->name, gpu.name), file,
                      fmt::format("calibrate with a run on {}, or plan for {}", gpu.name, is->name));
    }
  }
}

void add_report(const CalibrationText& file, const topology::DevicePeaks& gpu, std::vector<MeasuredRow>& rows,
                std::vector<double>& shares) {
  const ReadReport report = read_report(file.text, file.file, file.file);
  const Field document(report.document, file.file);
  check_devices(document, file.file, gpu);
  const std::string& name = document["model"]["name"].text();
  const std::optional<ModelConfig> config = named_configuration(name);
  const std::string& dtype = document["model"]["dtype"].text();
  const bool plain =
      document["model"]["quantisation"]["scheme"].text() == "none" && (dtype == "fp16" || dtype == "bf16");
  if (!config || !plain || config->layers != document["model"]["layers"].count()) {
    throw UserError(fmt::format("the report is of {} in {}, and no named configuration in 16 bits", name, dtype),
                    file.file, "measure one of them: shardscope plan --list names all");
  }
  const size_t before = rows.size();
  for (const PointResult& point : report.points) {
    const bool usable = point.kind == FigureKind::kMeasured && point.status == PointStatus::kOk && point.tpot_ms.p50 &&
                        point.group.replicas == 1 && point.pp == 1 && !point.cache_resident.value_or(false);
    if (!usable) continue;
    rows.push_back({.name = fmt::format("{}: TP {}, batch {}", file.file, point.tp, point.workload.batch),
                    .of = {.model = name, .gpu = std::string(gpu.name), .tp = point.tp, .workload = point.workload},
                    .tpot_ms = *point.tpot_ms.p50});
    for (const RankFigures& rank : point.ranks) {
      const double share = rank.achievable_gb_per_s / gpu.gb_per_s;
      if (share >= 1) {
        throw UserError(fmt::format("a rank read {:.0f} GB/s, and the data sheet of {} says {:.0f}",
                                    rank.achievable_gb_per_s, gpu.name, gpu.gb_per_s),
                        file.file, "see which GPU it was, and whether a cache held the shard");
      }
      if (share > 0) shares.push_back(share);
    }
  }
  if (rows.size() == before) {
    throw UserError("no row of this report was measured, is ok, and has a TPOT", file.file, "give one that has");
  }
}

/// Predicts the rows of reports on a machine, whatever the overhead of a layer.
class ReportRows {
 public:
  ReportRows(const std::vector<MeasuredRow>& rows, const PlanMachine& machine, const PlanConstants& constants,
             const Reach& reach, std::string_view way, const std::vector<SumTable>& own)
      : reach_(reach) {
    for (const MeasuredRow& row : rows) {
      models_.try_emplace({row.of.model, row.of.tp}, planned_named_model(row.of.model, row.of.tp));
      if (sums_.count(row.of.tp) > 0) continue;
      GroupLinks links{.path = GroupPath::kNvLink, .gb_per_s = 1};  // of one rank: never asked
      const auto group = machine.topology.groups.find(row.of.tp);
      if (row.of.tp > 1 && group == machine.topology.groups.end()) {
        throw UserError(fmt::format("{} GPUs worked there, and {} has {}", row.of.tp, machine.name, machine.gpus()),
                        row.name, "calibrate with a run on such a machine");
      }
      if (row.of.tp > 1) links = links_of_group(machine.topology, group->second.best, machine.gpu->name);
      sums_.try_emplace(row.of.tp, constants, machine.gpu->name, links, way, own);
    }
  }

  double ms(const MeasuredRow& row, double overhead_us) {
    reach_.overhead_us = overhead_us;
    return predicted_step(models_.at({row.of.model, row.of.tp}), reach_, sums_.at(row.of.tp), row.of.workload, 1).ms;
  }

  /// The overhead that fits them best, by the sum of |ln(predicted / measured)|.
  double best_overhead(const std::vector<MeasuredRow>& rows) {
    double best = 0;
    double least = INFINITY;
    for (int us = 0; us <= kMostUs; ++us) {
      double sum = 0;
      for (const MeasuredRow& row : rows) sum += std::abs(std::log(ms(row, us) / row.tpot_ms));
      if (sum < least) {
        least = sum;
        best = us;
      }
    }
    return best;
  }

  static constexpr int kMostUs = 300;

 private:
  Reach reach_;
  std::map<std::pair<std::string, int>, PlannedModel> models_;
  std::map<int, SumModel> sums_;
};

/// Of rows of each model and degree, predicted from fits to all others: the worst |ln|; nullopt for fewer than three.
std::optional<double> worst_left_out(const std::vector<MeasuredRow>& rows, ReportRows& predictions) {
  constexpr size_t kEnough = 3;
  std::set<std::pair<std::string, int>> systems;
  for (const MeasuredRow& row : rows) systems.insert({row.of.model, row.of.tp});
  if (systems.size() < kEnough) return std::nullopt;
  double worst = 0;
  for (const auto& system : systems) {
    std::vector<MeasuredRow> others;
    for (const MeasuredRow& row : rows) {
      if (std::make_pair(row.of.model, row.of.tp) != system) others.push_back(row);
    }
    const double overhead = predictions.best_overhead(others);
    for (const MeasuredRow& row : rows) {
      if (std::make_pair(row.of.model, row.of.tp) != system) continue;
      worst = std::max(worst, std::abs(std::log(predictions.ms(row, overhead) / row.tpot_ms)));
    }
  }
  return worst;
}

void fit_overhead(const std::vector<MeasuredRow>& rows, ReportRows predictions, OwnMeasurements& own) {
  const double overhead = predictions.best_overhead(rows);
  own.overhead_us = overhead;
  own.notes.push_back(fmt::format(
      "overhead of a layer fitted to {} row{}: {:.0f} us{}", rows.size(), rows.size() == 1 ? "" : "s", overhead,
      overhead == 0 || overhead == ReportRows::kMostUs ? ", the end of what a fit may give" : ""));
  for (const MeasuredRow& row : rows) {
    const double ms = predictions.ms(row, overhead);
    own.notes.push_back(fmt::format("{}: measured {:.3g} ms, fitted {:.3g} ms ({:+.1f} %)", row.name, row.tpot_ms, ms,
                                    100 * (ms / row.tpot_ms - 1)));
  }
  // Fewer say little of how far others will be: the shipped spread stays then.
  if (const std::optional<double> worst = worst_left_out(rows, predictions)) own.spread.step = std::expm1(*worst);
}

void check_processes(const std::vector<std::pair<std::string, FileTables>>& files) {
  const std::pair<std::string, FileTables>* one = nullptr;
  const std::pair<std::string, FileTables>* each = nullptr;
  for (const auto& file : files) {
    if (!file.second.one_process) continue;
    (*file.second.one_process ? one : each) = &file;
  }
  if (one == nullptr || each == nullptr) return;
  throw UserError(fmt::format("one process drives all GPUs there, and each its own in {}: launches are part of the "
                              "former's times, and the two do not fit into one table",
                              each->first),
                  one->first, "run all_reduce_perf under mpirun with -g 1, or leave one of the files out");
}

void check_small_sums(const SumTable& table, const std::string& file) {
  if (table.us.begin()->first < kSmallSum) return;
  throw UserError(
      fmt::format("no all-reduce of {} ranks under {} KiB: a step's sums are that small, and larger ones do not "
                  "tell their time",
                  table.ranks, kSmallSum >> 10),
      file, "measure from 1 KiB on: all_reduce_perf -b 1K, or shardscope comm --min-bytes 1024");
}

}  // namespace

OwnMeasurements read_calibration(std::span<const CalibrationText> files, const PlanMachine& machine,
                                 const PlanConstants& constants, const Calibration& calibration,
                                 const std::string& software) {
  OwnMeasurements own;
  std::vector<std::pair<std::string, FileTables>> tables;
  std::vector<MeasuredRow> rows;
  std::vector<double> shares;
  for (const CalibrationText& file : files) {
    if (is_report(file.text)) {
      add_report(file, *machine.gpu, rows, shares);
      continue;
    }
    const Json document = parsed(file);
    const bool comm = schema_of(document) == "shardscope.comm/1";
    tables.emplace_back(file.file, comm ? comm_tables(document, file.file) : other_tables(file));
  }
  check_processes(tables);
  for (const auto& [file, of] : tables) {
    for (const SumTable& table : of.tables) {
      check_small_sums(table, file);
      own.notes.push_back(table_note(table));
      SumTable& merged = table_for(own.sums, table.ranks, table.way, file);
      merged.one_process = of.one_process.value_or(false);
      for (const auto& [bytes, us] : table.us) keep_fastest(merged.us, bytes, us);
    }
    own.notes.insert(own.notes.end(), of.notes.begin(), of.notes.end());
    if (of.one_process.value_or(false)) {
      own.notes.push_back(fmt::format("{}: one process drives all GPUs: its launches are in these times", file));
    }
  }
  if (rows.empty()) return own;
  if (shares.empty()) {
    throw UserError("no rank of these reports tells its read bandwidth", rows.front().name,
                    "give a report of bench or scale that nobody has changed");
  }
  own.memory_share = *std::max_element(shares.begin(), shares.end());
  own.notes.push_back(
      fmt::format("read bandwidth measured by the runs: {:.1f} % of the data sheet", 100 * *own.memory_share));
  const Software& family = constants.software_named(software);
  Reach reach = reach_of(constants, calibration, *machine.gpu, family);
  reach.memory_share = *own.memory_share;
  fit_overhead(rows, ReportRows(rows, machine, constants, reach, family.way, own.sums), own);
  return own;
}

}  // namespace shardscope::runtime
