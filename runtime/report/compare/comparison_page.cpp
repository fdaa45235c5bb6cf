#include <fmt/format.h>

#include "runtime/report/compare/comparing.hpp"
#include "runtime/report/page/page.hpp"

namespace shardscope::runtime {

std::string comparison_page(const Json& document) {
  std::vector<std::string> names;
  for (const Json& name : document.at("names")) names.push_back(name.get<std::string>());
  return page_shell({.title = fmt::format("shardscope compare: {}", fmt::join(names, ", ")),
                     .scripts = {kCompareScript},
                     .data = {{"comparison", document}}});
}

}  // namespace shardscope::runtime
