// What rank 0 of `comm` keeps while it runs: the rows so far, the files in which they stand, and what a person sees of
// it. One mutex holds all of it together, since an interrupt writes from a thread of its own; once interrupted, nothing
// else is written or shown.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/progress.hpp"
#include "launch/report_pair.hpp"
#include "launch/sweep_options.hpp"
#include "runtime/report/comm_report.hpp"

namespace shardscope::launch {

/// The report files that were asked for. Throws UserError where one cannot be written, and where its .partial file
/// holds rows of an earlier run.
struct CommFiles : ReportPair {
  explicit CommFiles(const SweepFiles& names);
};

class CommRecord {
 public:
  /// report: still without rows. sums: how many there will be.
  CommRecord(runtime::CommReport report, CommFiles files, ProgressMode progress, size_t sums);

  /// Before a turn of a way.
  void tick(const std::string& doing);
  /// Rows of one sum, all its ways.
  void add(const std::vector<runtime::SumRow>& rows);
  void leave_out(const std::vector<runtime::LeftOutWay>& ways);

  /// All is measured: what is shown and written from now on is that.
  void complete();
  /// The files get their names. Throws SystemError for the first that does not, after all were tried.
  void finish();

  /// Ends the record: writes what there is once more, shows its table, and returns the words of the error.
  std::string interrupted(const std::string& signal);
  /// Ends the record after a failure: writes what there is once more. Returns the line that says where it stands; empty
  /// where nothing is kept.
  std::string failed();

  std::string table() const { return runtime::comm_table(report_.rows); }
  std::string json_text() const { return runtime::document_text(comm_json(report_)); }
  std::string csv_text() const { return runtime::comm_csv(report_.rows, report_.header.environment.host); }

  /// Throws SystemError that names the first row whose sums are wrong.
  void refuse_wrong() const;

 private:
  bool write_partial();
  std::optional<std::string> kept_in() const;

  runtime::CommReport report_;
  CommFiles files_;
  std::mutex mutex_;
  Progress progress_;
  size_t sums_;
  size_t done_ = 0;
  bool kept_ = false;  // the rows so far stand in the files' .partial
  bool interrupted_ = false;
  bool finished_ = false;
};

}  // namespace shardscope::launch
