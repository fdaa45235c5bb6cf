// Reports as one HTML file: style, scripts, Chart.js, data and pictures stand inside, nothing is fetched, nothing runs
// that the build did not put there. What a page shows is the work of its script (*.js here), which gets the documents
// as JSON and writes every text of theirs as text, never as HTML: names of models, files and hosts are not ours.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/report/document.hpp"
#include "runtime/report/page/assets.hpp"

namespace shardscope::runtime {

/// A page about to be written. Its scripts run at the end of the document, one after another, after Chart.js and
/// page.js, whose `Page` has what pages share (see there): Page.data(id) gives a document of `data`.
struct PageShell {
  std::string title;                               // any text
  std::vector<PageAsset> scripts;                  // of this page alone
  std::vector<std::pair<std::string, Json>> data;  // id, document; an id is a word of ours
  std::vector<std::pair<std::string, std::string>>
      pictures{};  // id, <svg> element of ours; hidden until a script shows it
};

/// The document. Bytes of `data` and `title` that are not UTF-8 are left out.
std::string page_shell(const PageShell& shell);

/// What a report's page shows beside the report.
struct PageExtras {
  std::string topology_svg;  // topology::topology_svg of the report's; empty: none
};

/// The page of a report (schema shardscope.report/1, as report_json writes it), complete or not.
std::string report_page(const Json& report, const PageExtras& extras);

}  // namespace shardscope::runtime
