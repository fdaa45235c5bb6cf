#include "runtime/report/report_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

namespace fs = std::filesystem;

std::string partial_name(const std::string& path) {
  return path + ".partial";
}

constexpr const char* kRemedy = "name a file in a folder that exists, is writable and has room";

[[noreturn]] void refuse(const std::string& path) {
  throw UserError(std::string("cannot write the report: ") + std::strerror(errno), path, kRemedy);
}

/// After the run: the figures are lost, which is no wrong usage.
[[noreturn]] void fail(const std::string& path) {
  throw SystemError(std::string("cannot write the report: ") + std::strerror(errno), path, kRemedy);
}

}  // namespace

ReportFile::ReportFile(std::string path) : path_(std::move(path)) {
  std::error_code code;
  const fs::path resolved = fs::weakly_canonical(path_, code);
  target_ = code ? path_ : resolved.string();
  const fs::file_status status = fs::status(target_, code);
  if (fs::is_directory(status)) throw UserError("cannot write the report: this is a folder", path_, "name a file");
  regular_ = !fs::exists(status) || fs::is_regular_file(status);
  if (!regular_) return;
  if (fs::exists(status) && access(target_.c_str(), W_OK) != 0) refuse(path_);
  errno = 0;
  if (!std::ofstream(partial_name(target_), std::ios::app)) refuse(path_);
  if (fs::file_size(partial_name(target_), code) == 0) fs::remove(partial_name(target_), code);
}

void ReportFile::write_to(const std::string& name, const std::string& text) const {
  errno = 0;
  std::ofstream out(name, std::ios::binary | std::ios::trunc);
  out << text;
  out.flush();
  if (!out) fail(path_);
}

void ReportFile::replace(const std::string& name, const std::string& text) const {
  const std::string scratch = target_ + ".partial." + std::to_string(getpid());
  std::error_code code;
  try {
    write_to(scratch, text);
  } catch (const SystemError&) {
    fs::remove(scratch, code);
    throw;
  }
  fs::rename(scratch, name, code);
  if (code) {
    errno = code.value();
    fail(path_);
  }
}

void ReportFile::write_partial(const std::string& text) {
  if (regular_) replace(partial_name(target_), text);
}

std::optional<std::string> ReportFile::partial_path() const {
  if (!regular_) return std::nullopt;
  std::error_code code;
  return partial_name(fs::is_symlink(fs::symlink_status(path_, code)) ? target_ : path_);
}

void ReportFile::finish(const std::string& text) {
  if (!regular_) {
    write_to(target_, text);
    return;
  }
  replace(target_, text);
  std::error_code ignored;  // there is none when the run had no points
  fs::remove(partial_name(target_), ignored);
}

}  // namespace shardscope::runtime
