// Text within HTML, SVG and XML.
#pragma once

#include <string>
#include <string_view>

namespace shardscope::topology {

/// `text` as it stands between tags, or in an attribute's quotes of either kind. UTF-8 in, UTF-8 out.
std::string escaped_markup(std::string_view text);

}  // namespace shardscope::topology
