#include "launch/sweep_record.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/output.hpp"
#include "runtime/report/attribution_table.hpp"
#include "runtime/report/csv.hpp"
#include "runtime/report/page/page.hpp"
#include "runtime/report/table.hpp"

namespace shardscope::launch {
namespace {

using runtime::PointResult;
using runtime::PointStatus;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code code;
  return std::filesystem::equivalent(a, b, code) && !code;
}

bool names_file(const std::string& name) {
  return !name.empty() && name != "-";
}

/// Only the very file that is gone on with may be replaced: what it holds is taken over first.
std::optional<runtime::ReportFile> json_file(const SweepArguments& arguments) {
  const SweepFiles& files = arguments.files;
  if (!names_file(files.json)) return std::nullopt;
  const std::string partial = runtime::partial_path_of(files.json);
  const bool gone_on_with = !files.resume.empty() && same_file(partial, files.resume);
  return report_file(files.json, arguments.model,
                     runtime::EarlierPartial{.replaced = gone_on_with,
                                             .remedy = fmt::format("go on with --resume {}, or remove it", partial)});
}

/// The points of a CSV file come from the report that --resume names.
std::optional<runtime::ReportFile> csv_file(const SweepArguments& arguments) {
  const SweepFiles& files = arguments.files;
  if (!names_file(files.csv)) return std::nullopt;
  return report_file(
      files.csv, arguments.model,
      runtime::EarlierPartial{.replaced = !files.resume.empty(),
                              .remedy = "go on with --resume and the JSON report of that run, or remove it"});
}

/// Written at the end alone.
std::optional<runtime::ReportFile> html_file(const SweepArguments& arguments) {
  if (arguments.files.html.empty()) return std::nullopt;
  return report_file(arguments.files.html, arguments.model);
}

}  // namespace

ReportFiles::ReportFiles(const SweepArguments& arguments)
    : ReportPair{json_file(arguments), csv_file(arguments), html_file(arguments)} {}

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
      if (const std::string parts = runtime::rank_parts_line(point, rank); !parts.empty())
        progress_.line("    " + parts);
    }
  }
}

std::string SweepRecord::json_text() const {
  return runtime::document_text(report_json(subject_.header, subject_.model, subject_.arguments.sweep, body_));
}

std::string SweepRecord::csv_text() const {
  return points_csv(body_.points, subject_.model.config.name, subject_.header.environment.host);
}

std::string SweepRecord::html_text() const {
  return runtime::report_page(report_json(subject_.header, subject_.model, subject_.arguments.sweep, body_),
                              {.topology_svg = subject_.topology_svg});
}

void SweepRecord::write_partial() {
  body_.advice = subject_.kind.advice(body_.points);
  if (files_.json && write_partial(*files_.json, json_text())) kept_ = points_text();
  if (files_.csv && write_partial(*files_.csv, csv_text())) csv_kept_ = true;
}

/// A disk that is full for a while must not end a run of hours: the points are still in memory.
bool SweepRecord::write_partial(runtime::ReportFile& file, const std::string& text) {
  try {
    file.write_partial(text);
    return file.partial_path().has_value();
  } catch (const Error& error) {
    const std::string warning = fmt::format("points are not kept for now: {}", error.what());
    const std::vector<std::string>& said = body_.warnings;
    if (std::find(said.begin(), said.end(), warning) != said.end()) return false;
    body_.warnings.push_back(warning);
    progress_.clear();
    write_error(fmt::format("warning: {}\n", warning));
    return false;
  }
}

void SweepRecord::complete(const std::vector<PointResult>& points) {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  progress_.clear();
  body_.points = points;
  body_.advice = subject_.kind.advice(points);
  body_.complete = true;
}

void SweepRecord::finish() {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  files_.finish(json_text(), csv_text(), files_.html ? html_text() : "");
  finished_ = true;
}

std::string SweepRecord::interrupted(const std::string& signal) {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  progress_.clear();
  const std::string what = "interrupted by " + signal;
  if (finished_) return what + ", when all was measured and written";
  if (body_.points.empty()) return what + ", nothing was measured yet";
  body_.complete = false;
  body_.warnings.push_back(what);
  write_partial();
  write_error(fmt::format("\n{}\n", subject_.kind.table(body_.points)));
  return fmt::format("{}, {} measured, {}", what, points_text(), remedy_text());
}

std::string SweepRecord::failed() {
  const std::lock_guard lock(mutex_);
  if (interrupted_ || finished_) return "";
  progress_.clear();
  if (body_.points.empty()) return "";
  body_.complete = false;
  write_partial();
  if (!files_.json || !kept_) return "";
  const std::string partial = *files_.json->partial_path();
  return fmt::format("{} are kept in {}; go on with --resume {}", *kept_, partial, partial);
}

/// "2 of 4 points"; those that had only the first of their visits are named beside.
std::string SweepRecord::points_text() const {
  const auto first_visits = std::count_if(body_.points.begin(), body_.points.end(), [](const PointResult& point) {
    return point.status == PointStatus::kIncomplete;
  });
  const runtime::SweepOptions& sweep = subject_.arguments.sweep;
  const auto measured = static_cast<std::ptrdiff_t>(body_.points.size()) - first_visits;
  std::string text = fmt::format("{} of {} points", measured, sweep.point_count());
  if (first_visits > 0)
    text += fmt::format(" and the first visit{} of {} more", first_visits == 1 ? "" : "s", first_visits);
  return text;
}

std::string SweepRecord::remedy_text() const {
  if (kept_) return "go on with --resume " + *files_.json->partial_path();
  if (files_.json) return "nothing was kept, see the warning";
  if (csv_kept_) return fmt::format("they stand in {}; --json FILE could go on", *files_.csv->partial_path());
  return "nothing was kept: --json FILE keeps the points";
}

}  // namespace shardscope::launch
