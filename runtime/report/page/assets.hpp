// Files that the build puts into the program, most for pages to carry: see assets.cmake, which makes one definition of
// each.
#pragma once

#include <string_view>

namespace shardscope::runtime {

struct PageAsset {
  std::string_view text;
  std::string_view sha256;  // of the text, hexadecimal
};

extern const PageAsset kChartScript;    // Chart.js
extern const PageAsset kChartLicence;   // its licence
extern const PageAsset kPageStyle;      // page.css
extern const PageAsset kPageScript;     // page.js: what pages share
extern const PageAsset kReportScript;   // report*.js: the page of a report
extern const PageAsset kCompareScript;  // compare/compare.js: the page of a comparison
extern const PageAsset kPlanConstants;  // runtime/plan/constants.json

}  // namespace shardscope::runtime
