// A directory that stands for the root of a host's file system, filled by a test and removed with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

namespace shardscope::test {

class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "shardscope_root_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  ~FakeRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream out(path_ + file, std::ios::binary);
    out << text;
    REQUIRE(out.good());
  }
  void make_folder(const std::string& folder) const { std::filesystem::create_directories(path_ + folder); }
  void remove(const std::string& file) const { REQUIRE(std::filesystem::remove_all(path_ + file) > 0); }

 private:
  std::string path_;
};

}  // namespace shardscope::test
