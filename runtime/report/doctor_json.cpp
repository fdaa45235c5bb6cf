#include <algorithm>

#include "kernels/base/error.hpp"
#include "runtime/report/doctor_report.hpp"
#include "runtime/report/json_values.hpp"

namespace shardscope::runtime {
namespace {

Json finding_json(const Finding& finding) {
  return {{"check", finding.check},
          {"verdict", name_of(finding.verdict)},
          {"evidence", finding.evidence},
          {"remedy", text_or_null(finding.remedy)}};
}

Json findings_json(std::span<const Finding> findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) list.push_back(finding_json(finding));
  return list;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProblem:
      return "problem";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kUnknown:
      return "unknown";
    case Verdict::kOk:
      return "ok";
  }
  throw BugError("a verdict without a name");
}

Json doctor_json(const DoctorReport& report) {
  Json counts = Json::object();
  for (const Verdict verdict : kVerdicts) {
    counts[name_of(verdict)] = std::count_if(report.findings.begin(), report.findings.end(),
                                             [&](const Finding& finding) { return finding.verdict == verdict; });
  }
  return {{"schema", "shardscope.doctor/1"},
          {"command", report.header.command},
          {"argv", report.header.argv},
          {"options", report.header.options},
          {"kind", report.emulated ? "emulated" : "measured"},
          {"environment", environment_json(report.header.environment)},
          {"findings", findings_json(report.findings)},
          {"counts", std::move(counts)}};
}

std::string findings_text(std::span<const Finding> findings) {
  return document_text(findings_json(findings));
}

std::vector<Finding> findings_of_text(std::string_view text) {
  try {
    std::vector<Finding> findings;
    for (const Json& item : Json::parse(text)) {
      const auto verdict = std::find_if(kVerdicts.begin(), kVerdicts.end(), [&](Verdict known) {
        return name_of(known) == item.at("verdict").get<std::string>();
      });
      require(verdict != kVerdicts.end(), "findings of a rank with an unknown verdict");
      findings.push_back({.check = item.at("check").get<std::string>(),
                          .verdict = *verdict,
                          .evidence = item.at("evidence").get<std::string>(),
                          .remedy = item.at("remedy").is_null() ? "" : item.at("remedy").get<std::string>()});
    }
    return findings;
  } catch (const nlohmann::json::exception&) {
    throw BugError("findings of a rank that are none");
  }
}

}  // namespace shardscope::runtime
