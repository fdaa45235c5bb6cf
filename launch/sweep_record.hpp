// What rank 0 of a sweep keeps while it runs: the points so far, the files in which they stand, and what a person sees
// of it. One mutex holds all of it together, since an interrupt writes from a thread of its own; once interrupted,
// nothing else is written or shown.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/progress.hpp"
#include "launch/sweep_command.hpp"
#include "launch/sweep_options.hpp"
#include "runtime/report/document.hpp"
#include "runtime/report/report_file.hpp"

namespace shardscope::launch {

/// The report files that were asked for. Throws UserError where one cannot be written.
struct ReportFiles {
  explicit ReportFiles(const SweepArguments& arguments);
  std::optional<runtime::ReportFile> json, csv;
};

class SweepRecord {
 public:
  /// All outlive the record.
  struct Subject {
    const SweepKind& kind;
    const SweepArguments& arguments;
    const runtime::OpenedModel& model;
    const runtime::ReportHeader& header;
  };
  SweepRecord(const Subject& subject, ReportFiles files, std::vector<std::string> warnings);

  /// The run's steps, as run_sweep tells them.
  runtime::SweepProgress progress();

  /// All is measured: the files get their names. Throws SystemError.
  void finish(const std::vector<runtime::PointResult>& points);

  /// Ends the record: writes what there is once more, shows its table, and returns the words of the error.
  std::string interrupted(const std::string& signal);

  std::string json_text() const;
  std::string csv_text() const;

 private:
  void write_partial();
  void show(const std::vector<size_t>& changed);
  std::string measured_text() const;
  std::string remedy_text() const;

  Subject subject_;
  ReportFiles files_;
  std::mutex mutex_;
  Progress progress_;
  runtime::ReportBody body_;
  bool interrupted_ = false;
  bool finished_ = false;  // the reports stand under their names
};

}  // namespace shardscope::launch
