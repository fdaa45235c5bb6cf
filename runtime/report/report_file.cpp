#include "runtime/report/report_file.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRemedy = "name a file in a folder that exists, is writable and has room";

[[noreturn]] void refuse(const std::string& path) {
  throw UserError(std::string("cannot write the report: ") + std::strerror(errno), path, kRemedy);
}

/// After the run: the figures are lost, which is no wrong usage.
[[noreturn]] void fail(const std::string& path) {
  throw SystemError(std::string("cannot write the report: ") + std::strerror(errno), path, kRemedy);
}

std::string partial_name(const std::string& target) {
  return target + ".partial";
}

/// The file that is written to: links followed.
std::string target_of(const std::string& path) {
  std::error_code code;
  if (fs::is_symlink(path, code) && !fs::exists(path, code)) {  // its target is still to be made
    const fs::path next = fs::path(path).parent_path() / fs::read_symlink(path, code);
    if (!code && !fs::is_symlink(next, code)) return fs::weakly_canonical(next, code).string();
  }
  const fs::path resolved = fs::weakly_canonical(path, code);
  return code ? path : resolved.string();
}

bool holds_something(const std::string& name) {
  std::error_code code;
  const auto bytes = fs::file_size(name, code);
  return !code && bytes > 0;
}

/// Closes what was opened, whatever happens in between.
class Output {
 public:
  explicit Output(const std::string& name)
      : fd_(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                   S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() {
    if (fd_ >= 0) ::close(fd_);
  }

  bool open() const { return fd_ >= 0; }

  /// As private as the file that it will replace.
  void take_mode_of(const std::string& other) const {
    struct stat earlier {};
    if (::stat(other.c_str(), &earlier) == 0) static_cast<void>(::fchmod(fd_, earlier.st_mode & 07777U));
  }

  bool write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  /// Without it, a machine that stops soon after the rename may come back with an empty file. Some file systems have no
  /// such call.
  bool sync() const { return ::fsync(fd_) == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP; }

  /// Some file systems say only now that the disk was full.
  bool close() { return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR; }

 private:
  int fd_;
};

}  // namespace

std::string partial_path_of(const std::string& path) {
  return partial_name(target_of(path));
}

ReportFile::ReportFile(std::string path) : path_(std::move(path)), target_(target_of(path_)) {
  std::error_code code;
  const fs::file_status status = fs::status(target_, code);
  if (fs::is_directory(status)) throw UserError("cannot write the report: this is a folder", path_, "name a file");
  regular_ = !fs::exists(status) || fs::is_regular_file(status);
  if (!regular_) return;
  if (fs::exists(status) && access(target_.c_str(), W_OK) != 0) refuse(path_);
  errno = 0;
  if (!std::ofstream(partial_name(target_), std::ios::app)) refuse(path_);
  if (fs::file_size(partial_name(target_), code) == 0) fs::remove(partial_name(target_), code);
}

ReportFile::ReportFile(std::string path, const EarlierPartial& earlier) : ReportFile(std::move(path)) {
  grows_ = regular_;
  if (!grows_ || earlier.replaced || !holds_something(partial_name(target_))) return;
  const std::string partial = *partial_path();
  throw UserError(partial + " holds points of an earlier run", path_,
                  earlier.remedy.empty() ? "remove it" : earlier.remedy);
}

void ReportFile::write_to(const std::string& name, const std::string& text, bool synced) const {
  Output out(name);
  if (out.open() && name != target_) out.take_mode_of(target_);
  if (!out.open() || !out.write(text) || (synced && !out.sync()) || !out.close()) fail(path_);
}

void ReportFile::replace(const std::string& name, const std::string& text) const {
  const std::string scratch = target_ + ".partial." + std::to_string(getpid());
  std::error_code code;
  try {
    write_to(scratch, text, /*synced=*/true);
  } catch (const SystemError&) {
    fs::remove(scratch, code);
    throw;
  }
  fs::rename(scratch, name, code);
  if (code) {
    std::error_code ignored;
    fs::remove(scratch, ignored);
    errno = code.value();
    fail(path_);
  }
}

void ReportFile::write_partial(const std::string& text) {
  if (grows_) replace(partial_name(target_), text);
}

std::optional<std::string> ReportFile::partial_path() const {
  if (!grows_) return std::nullopt;
  std::error_code code;
  return partial_name(fs::is_symlink(fs::symlink_status(path_, code)) ? target_ : path_);
}

void ReportFile::finish(const std::string& text) {
  if (!regular_) {
    write_to(target_, text, /*synced=*/false);
    return;
  }
  replace(target_, text);
  if (!grows_) return;
  std::error_code ignored;  // there is none when the run had no points
  fs::remove(partial_name(target_), ignored);
}

}  // namespace shardscope::runtime
