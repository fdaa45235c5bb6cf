#include "runtime/report/report_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

std::string partial_name(const std::string& path) {
  return path + ".partial";
}

[[noreturn]] void refuse(const std::string& path) {
  throw UserError(std::string("cannot write the report: ") + std::strerror(errno), path,
                  "name a file in a folder that exists, is writable and has room");
}

}  // namespace

ReportFile::ReportFile(std::string path) : path_(std::move(path)) {
  if (std::filesystem::is_directory(path_)) {
    throw UserError("cannot write the report: this is a folder", path_, "name a file");
  }
  errno = 0;
  if (!std::ofstream(partial_name(path_), std::ios::app)) refuse(path_);
  if (std::filesystem::file_size(partial_name(path_)) == 0) std::filesystem::remove(partial_name(path_));
}

void ReportFile::replace(const std::string& target, const std::string& text) const {
  const std::string scratch = path_ + ".partial." + std::to_string(getpid());
  errno = 0;
  {
    std::ofstream out(scratch, std::ios::binary | std::ios::trunc);
    out << text;
    out.flush();
    if (!out) {
      std::filesystem::remove(scratch);
      refuse(path_);
    }
  }
  std::error_code code;
  std::filesystem::rename(scratch, target, code);
  if (code) {
    errno = code.value();
    refuse(path_);
  }
}

void ReportFile::write_partial(const std::string& text) {
  replace(partial_name(path_), text);
}

void ReportFile::finish(const std::string& text) {
  replace(path_, text);
  std::error_code ignored;  // there is none when the run had no points
  std::filesystem::remove(partial_name(path_), ignored);
}

}  // namespace shardscope::runtime
