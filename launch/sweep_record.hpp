// What rank 0 of a sweep keeps while it runs: the points so far, the files in which they stand, and what a person sees
// of it. One mutex holds all of it together, since an interrupt writes from a thread of its own; once interrupted,
// nothing else is written or shown.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "launch/progress.hpp"
#include "launch/report_pair.hpp"
#include "launch/sweep_command.hpp"
#include "launch/sweep_options.hpp"
#include "runtime/report/document.hpp"

namespace shardscope::launch {

/// The report files that were asked for. Throws UserError where one cannot be written, and where its .partial file
/// holds points of an earlier run that --resume does not take over.
struct ReportFiles : ReportPair {
  explicit ReportFiles(const SweepArguments& arguments);
};

class SweepRecord {
 public:
  /// All outlive the record.
  struct Subject {
    const SweepKind& kind;
    const SweepArguments& arguments;
    const runtime::OpenedModel& model;
    const runtime::ReportHeader& header;
    std::string topology_svg{};  // for the page; empty: none
  };
  SweepRecord(const Subject& subject, ReportFiles files, std::vector<std::string> warnings);

  /// The run's steps, as run_sweep tells them.
  runtime::SweepProgress progress();

  /// All is measured: what is shown and written from now on is that.
  void complete(const std::vector<runtime::PointResult>& points);

  /// The files get their names. Throws SystemError for the first that does not, after all were tried.
  void finish();

  /// Ends the record: writes what there is once more, shows its table, and returns the words of the error.
  std::string interrupted(const std::string& signal);

  /// Ends the record after a failure: writes what there is once more. Returns the line that says where it stands and
  /// how to go on; empty where nothing is kept.
  std::string failed();

  std::string json_text() const;
  std::string csv_text() const;
  std::string html_text() const;

 private:
  void write_partial();
  bool write_partial(runtime::ReportFile& file, const std::string& text);  // whether it stands
  void show(const std::vector<size_t>& changed);
  std::string points_text() const;
  std::string remedy_text() const;

  Subject subject_;
  ReportFiles files_;
  std::mutex mutex_;
  Progress progress_;
  runtime::ReportBody body_;
  std::optional<std::string> kept_;  // how many points stand in the JSON file's .partial
  bool csv_kept_ = false;
  bool interrupted_ = false;
  bool finished_ = false;  // the reports stand under their names
};

}  // namespace shardscope::launch
