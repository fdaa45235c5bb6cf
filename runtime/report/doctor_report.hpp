// What `doctor` found, as a document (schema shardscope.doctor/1) and as a table for people. What is looked at, and
// what a finding is, is launch/'s.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/report/document.hpp"

namespace shardscope::runtime {

/// The worst first: tables are in this order. kUnknown: it could not be found out, and the evidence says why.
enum class Verdict : uint8_t { kProblem, kWarning, kUnknown, kOk };
inline constexpr std::array kVerdicts = {Verdict::kProblem, Verdict::kWarning, Verdict::kUnknown, Verdict::kOk};
std::string_view name_of(Verdict verdict);  // "problem", as the documents have it

struct Finding {
  std::string check;  // one of a fixed set of names: "peer access"
  Verdict verdict = Verdict::kOk;
  std::string evidence;  // what was seen, and where
  std::string remedy;    // empty: nothing is to be done

  bool operator==(const Finding&) const = default;
};

struct DoctorReport {
  ReportHeader header;
  bool emulated = false;  // on stand-ins for devices
  std::vector<Finding> findings;
};

Json doctor_json(const DoctorReport& report);

/// Findings among ranks, and back. Throws BugError for other text.
std::string findings_text(std::span<const Finding> findings);
std::vector<Finding> findings_of_text(std::string_view text);

/// The worst first, those of one verdict in their order; each remedy below its evidence. No line is wider than
/// `columns`, unless a word is. Ends with a line that counts.
std::string doctor_table(std::span<const Finding> findings, size_t columns);

/// "2 problems, 1 warning, 3 unknown, 17 ok": those that there are.
std::string counts_text(std::span<const Finding> findings);

}  // namespace shardscope::runtime
