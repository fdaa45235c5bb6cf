#include "topology/topology.hpp"

#include <catch2/catch.hpp>

using namespace shardscope::topology;

TEST_CASE("path_of: the codes of nvidia-smi, and nothing else") {
  for (const char* text : {"X", "NV1", "NV12", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC"}) {
    REQUIRE(path_of(text));
    CHECK(text_of(*path_of(text)) == text);
  }
  CHECK(path_of("NV12")->nvlinks == 12);
  for (const char* text : {"", "NV", "NV0", "NV012", "NV123", "NV1x", "NV-1", "NV#", "x", "SYSS", "PI", "nv1", "N/A"}) {
    CHECK_FALSE(path_of(text));
  }
}

TEST_CASE("nearer: more NVLinks, then PCIe from one bridge to the link between sockets") {
  const char* const near_to_far[] = {"X", "NV18", "NV2", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS"};
  for (size_t i = 0; i < std::size(near_to_far); ++i) {
    for (size_t j = 0; j < std::size(near_to_far); ++j) {
      CAPTURE(near_to_far[i], near_to_far[j]);
      CHECK(nearer(*path_of(near_to_far[i]), *path_of(near_to_far[j])) == (i < j));
    }
  }
  CHECK_FALSE(nearer(*path_of("SOC"), *path_of("SYS")));
  CHECK_FALSE(nearer(*path_of("SYS"), *path_of("SOC")));
  CHECK(nearer(*path_of("NODE"), *path_of("SOC")));
}
