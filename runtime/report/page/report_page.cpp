#include <fmt/format.h>

#include "runtime/report/page/page.hpp"

namespace shardscope::runtime {

std::string report_page(const Json& report, const PageExtras& extras) {
  PageShell shell{.title = fmt::format("shardscope {}: {}", report.at("command").get<std::string>(),
                                       report.at("model").at("name").get<std::string>()),
                  .scripts = {kReportScript},
                  .data = {{"report", report}}};
  if (!extras.topology_svg.empty()) shell.pictures.emplace_back("topology", extras.topology_svg);
  return page_shell(shell);
}

}  // namespace shardscope::runtime
