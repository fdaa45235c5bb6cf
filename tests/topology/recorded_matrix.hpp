// The cells of a recorded `nvidia-smi topo -m`, taken apart by white space alone: an answer that a probe is compared
// with, independent of the product's own reader.
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

namespace shardscope::test {

/// Of each row "GPUn": all words after its head.
inline std::vector<std::vector<std::string>> recorded_rows(const std::string& name) {
  std::ifstream file(std::string(SHARDSCOPE_TEST_DATA "/topologies/nvidia-smi/") + name);
  REQUIRE(file.good());
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::vector<std::string> row;
    while (words >> word) row.push_back(word);
    if (row.size() < 2 || row[0] != "GPU" + std::to_string(rows.size()) || row[1].starts_with("GPU")) continue;
    row.erase(row.begin());
    rows.push_back(row);
  }
  return rows;
}

/// The columns from `first` to before `end` of each row.
inline std::vector<std::vector<std::string>> columns_of(const std::vector<std::vector<std::string>>& rows, size_t first,
                                                        size_t end) {
  std::vector<std::vector<std::string>> cut;
  for (const std::vector<std::string>& row : rows) {
    REQUIRE(row.size() >= end);
    cut.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(first), row.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return cut;
}

}  // namespace shardscope::test
