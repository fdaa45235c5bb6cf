#include "launch/report_pair.hpp"

#include <exception>

#include "kernels/base/error.hpp"

namespace shardscope::launch {

void ReportPair::finish(const std::string& json_text, const std::string& csv_text, const std::string& html_text) {
  std::exception_ptr first;
  const auto finish_one = [&](std::optional<runtime::ReportFile>& file, const std::string& text) {
    if (!file) return;
    try {
      file->finish(text);
      file.reset();
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  };
  finish_one(json, json_text);
  finish_one(csv, csv_text);
  finish_one(html, html_text);
  if (first) std::rethrow_exception(first);
}

}  // namespace shardscope::launch
