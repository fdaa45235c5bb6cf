#include "launch/sweep_record.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/output.hpp"
#include "runtime/report/csv.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {
namespace {

using runtime::PointResult;
using runtime::PointStatus;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<runtime::ReportFile> file_named(const std::string& name, const ModelOptions& options) {
  if (name.empty() || name == "-") return std::nullopt;
  return report_file(name, options);
}

}  // namespace

ReportFiles::ReportFiles(const SweepArguments& arguments)
    : json(file_named(arguments.files.json, arguments.model)), csv(file_named(arguments.files.csv, arguments.model)) {}

SweepRecord::SweepRecord(const Subject& subject, ReportFiles files, std::vector<std::string> warnings)
    : subject_(subject),
      files_(std::move(files)),
      progress_(subject.arguments.model.progress, error_columns(), now_seconds,
                [](const std::string& bytes) { write_error(bytes); }) {
  body_.points = subject.arguments.sweep.done;
  body_.warnings = std::move(warnings);
}

runtime::SweepProgress SweepRecord::progress() {
  return {.say =
              [this](const std::string& line) {
                const std::lock_guard lock(mutex_);
                if (!interrupted_) progress_.line(line);
              },
          .points =
              [this](const std::vector<PointResult>& points, const std::vector<size_t>& changed) {
                const std::lock_guard lock(mutex_);
                if (interrupted_) return;
                body_.points = points;
                show(changed);
                write_partial();
              },
          .tick =
              [this](double fraction, const std::string& doing) {
                const std::lock_guard lock(mutex_);
                if (!interrupted_) progress_.tick(fraction, doing);
              }};
}

void SweepRecord::show(const std::vector<size_t>& changed) {
  for (const size_t index : changed) {
    const PointResult& point = body_.points[index];
    progress_.line(point_line(point));
    if (!subject_.arguments.model.verbose) continue;
    for (const std::string& verdict : point.verdicts) progress_.line("  " + verdict);
    for (const runtime::RankFigures& rank : point.ranks) {
      progress_.line(fmt::format("  rank {}: {:.2f} GB/s achievable, {} a step, loaded in {:.2f} s", rank.rank,
                                 rank.achievable_gb_per_s, runtime::bytes_text(rank.bytes.headline()),
                                 rank.load_seconds));
    }
  }
}

std::string SweepRecord::json_text() const {
  return runtime::document_text(report_json(subject_.header, subject_.model, subject_.arguments.sweep, body_));
}

std::string SweepRecord::csv_text() const {
  return points_csv(body_.points, subject_.model.config.name, subject_.header.environment.host);
}

void SweepRecord::write_partial() {
  body_.advice = subject_.kind.advice(body_.points);
  if (files_.json) files_.json->write_partial(json_text());
  if (files_.csv) files_.csv->write_partial(csv_text());
}

void SweepRecord::finish(const std::vector<PointResult>& points) {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  progress_.clear();
  body_.points = points;
  body_.advice = subject_.kind.advice(points);
  body_.complete = true;
  if (files_.json) files_.json->finish(json_text());
  if (files_.csv) files_.csv->finish(csv_text());
  finished_ = true;
}

std::string SweepRecord::interrupted(const std::string& signal) {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  progress_.clear();
  const std::string what = "interrupted by " + signal;
  if (finished_) return what + ", when all was measured and written";
  body_.complete = false;
  body_.warnings.push_back(what);
  try {
    write_partial();
  } catch (const Error& error) {
    write_error(fmt::format("warning: {}\n", error.what()));
  }
  if (!body_.points.empty()) write_error(fmt::format("\n{}\n", subject_.kind.table(body_.points)));
  return fmt::format("{}, {}, {}", what, measured_text(), remedy_text());
}

/// A point that had only the first of its visits does not count.
std::string SweepRecord::measured_text() const {
  const auto measured = std::count_if(body_.points.begin(), body_.points.end(), [](const PointResult& point) {
    return point.status != PointStatus::kIncomplete;
  });
  const runtime::SweepOptions& sweep = subject_.arguments.sweep;
  return fmt::format("{} of {} points measured", measured, sweep.degrees.size() * sweep.workloads.size());
}

std::string SweepRecord::remedy_text() const {
  const auto partial = [](const std::optional<runtime::ReportFile>& file) {
    return file ? file->partial_path() : std::nullopt;
  };
  if (const auto json = partial(files_.json)) return "go on with --resume " + *json;
  if (const auto csv = partial(files_.csv)) return fmt::format("they stand in {}; --json FILE could go on", *csv);
  return "nothing was kept: --json FILE keeps the points";
}

}  // namespace shardscope::launch
