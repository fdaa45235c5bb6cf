// The SHARDSCOPE_ names are definitions of launch/CMakeLists.txt, for this file alone; the commit stands in a header
// that a build writes anew where it has changed (write_commit.cmake). Versions of header libraries come from their own
// headers, those of libraries that other rooms use from pkg-config.
#include "launch/build_facts.hpp"

#include <fmt/format.h>
#include <boost/version.hpp>
#include <nlohmann/json.hpp>

#include "launch/commit.hpp"

namespace shardscope::launch {

runtime::BuildFacts build_facts() {
  return {
      .version = SHARDSCOPE_VERSION,
      .commit = kCommit,
      .compiler = SHARDSCOPE_COMPILER,
      .build_type = SHARDSCOPE_BUILD_TYPE,
      .libraries = {
          {"boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100'000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100)},
          {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10'000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
          {"highway", SHARDSCOPE_HIGHWAY_VERSION},
          {"hwloc", SHARDSCOPE_HWLOC_VERSION},
          {"nlohmann_json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR,
                                        NLOHMANN_JSON_VERSION_PATCH)},
          {"pcre2", SHARDSCOPE_PCRE2_VERSION},
          {"utf8proc", SHARDSCOPE_UTF8PROC_VERSION}}};
}

std::string version_text() {
  const runtime::BuildFacts build = build_facts();
  return build.commit.empty() ? build.version : fmt::format("{} (commit {})", build.version, build.commit);
}

}  // namespace shardscope::launch
