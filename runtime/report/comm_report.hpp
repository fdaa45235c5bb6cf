// What `comm` measured, as a document (schema shardscope.comm/1), as a table and as CSV.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/measure/comm.hpp"
#include "runtime/report/document.hpp"

namespace shardscope::runtime {

/// A way that a degree's ranks, or some of its messages, cannot use.
struct LeftOutWay {
  int tp = 1;
  std::string way;
  std::string why;
};

struct CommReport {
  ReportHeader header;
  SumProtocol protocol;
  bool emulated = false;
  std::vector<SumRow> rows;
  std::vector<LeftOutWay> left_out;
  std::vector<std::string> warnings;
  bool complete = false;
};

Json comm_json(const CommReport& report);

/// A block for each degree, type and mode, one line a row under the columns of nccl-tests, and what the columns mean;
/// then the crossovers.
std::string comm_table(std::span<const SumRow> rows);

/// One line a row (RFC 4180): units stand in the names, unknown is an empty cell.
std::string comm_csv(std::span<const SumRow> rows, const std::string& host);

/// The rows of one sum in a line, as progress: "tp 2, fp32, 1024 B: shm 1.23 us, mpi 4.56 us".
std::string sum_line(std::span<const SumRow> rows);

}  // namespace shardscope::runtime
