#include "launch/comm_record.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "kernels/base/error.hpp"
#include "launch/output.hpp"

namespace shardscope::launch {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<runtime::ReportFile> file_of(const std::string& name) {
  if (name.empty() || name == "-") return std::nullopt;
  return runtime::ReportFile(name, runtime::EarlierPartial{});
}

}  // namespace

CommFiles::CommFiles(const SweepFiles& names) : ReportPair{file_of(names.json), file_of(names.csv)} {}

CommRecord::CommRecord(runtime::CommReport report, CommFiles files, ProgressMode progress, size_t sums)
    : report_(std::move(report)),
      files_(std::move(files)),
      progress_(progress, error_columns(), now_seconds, [](const std::string& bytes) { write_error(bytes); }),
      sums_(sums) {}

void CommRecord::tick(const std::string& doing) {
  const std::lock_guard lock(mutex_);
  if (!interrupted_) progress_.tick(static_cast<double>(done_) / static_cast<double>(sums_), doing);
}

void CommRecord::add(const std::vector<runtime::SumRow>& rows) {
  const std::lock_guard lock(mutex_);
  ++done_;
  if (interrupted_ || rows.empty()) return;
  for (runtime::SumRow row : rows) {
    row.emulated = report_.emulated;
    report_.rows.push_back(std::move(row));
  }
  progress_.line(sum_line(rows));
  kept_ = write_partial();
}

void CommRecord::leave_out(const std::vector<runtime::LeftOutWay>& ways) {
  const std::lock_guard lock(mutex_);
  report_.left_out.insert(report_.left_out.end(), ways.begin(), ways.end());
  for (const runtime::LeftOutWay& way : ways) {
    progress_.line(fmt::format("note: tp {}: {} is left out: {}", way.tp, way.way, way.why));
  }
}

/// A disk that is full for a while must not end a run: the rows are still in memory.
bool CommRecord::write_partial() {
  bool all = files_.json || files_.csv;
  const auto write = [&](std::optional<runtime::ReportFile>& file, const std::string& text) {
    if (!file) return;
    try {
      file->write_partial(text);
      all = all && file->partial_path().has_value();
    } catch (const Error& error) {
      all = false;
      const std::string warning = fmt::format("rows are not kept for now: {}", error.what());
      std::vector<std::string>& said = report_.warnings;
      if (std::find(said.begin(), said.end(), warning) != said.end()) return;
      said.push_back(warning);
      progress_.clear();
      write_error(fmt::format("warning: {}\n", warning));
    }
  };
  if (files_.json) write(files_.json, json_text());
  if (files_.csv) write(files_.csv, csv_text());
  return all;
}

void CommRecord::complete() {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  progress_.clear();
  report_.complete = true;
}

void CommRecord::finish() {
  const std::lock_guard lock(mutex_);
  if (interrupted_) return;
  files_.finish(json_text(), csv_text());
  finished_ = true;
}

std::optional<std::string> CommRecord::kept_in() const {
  if (!kept_) return std::nullopt;
  return files_.json ? files_.json->partial_path() : files_.csv->partial_path();
}

std::string CommRecord::interrupted(const std::string& signal) {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  progress_.clear();
  const std::string what = "interrupted by " + signal;
  if (finished_) return what + ", when all was measured and written";
  if (report_.rows.empty()) return what + ", nothing was measured yet";
  report_.complete = false;
  report_.warnings.push_back(what);
  kept_ = write_partial();
  write_error(fmt::format("\n{}\n", table()));
  const std::optional<std::string> file = kept_in();
  return fmt::format("{}, {} of {} sums measured, {}", what, done_, sums_,
                     file ? fmt::format("they stand in {}", *file) : "nothing was kept: --json FILE keeps them");
}

std::string CommRecord::failed() {
  const std::lock_guard lock(mutex_);
  if (interrupted_ || finished_) return "";
  progress_.clear();
  if (report_.rows.empty()) return "";
  report_.complete = false;
  kept_ = write_partial();
  const std::optional<std::string> file = kept_in();
  return file ? fmt::format("{} of {} sums are kept in {}", done_, sums_, *file) : "";
}

void CommRecord::refuse_wrong() const {
  for (const runtime::SumRow& row : report_.rows) {
    if (row.wrong == 0) continue;
    throw SystemError(fmt::format("wrong sums: {} elements of {} bytes of {}{} by {}", row.wrong, row.sum.bytes(),
                                  kernels::facts(row.sum.dtype).name, row.sum.graph ? " in graphs" : "", row.way),
                      fmt::format("TP {}", row.sum.tp),
                      "leave that way out with --allreduce, and look for a device or link that fails");
  }
}

}  // namespace shardscope::launch
