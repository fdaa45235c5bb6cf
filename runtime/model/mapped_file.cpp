#include "runtime/model/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernels/base/error.hpp"

namespace shardscope::runtime {
namespace {

/// An open file descriptor. The map outlives it.
class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int number() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(path);
  if (file.number() < 0) {
    throw UserError(std::string("cannot open the file: ") + std::strerror(errno), path,
                    "check the path and permissions");
  }
  struct stat status {};
  check_os(::fstat(file.number(), &status), "fstat", path);
  if (!S_ISREG(status.st_mode)) throw UserError("not a regular file", path, "name a file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ > 0) {
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
    if (map == MAP_FAILED) {
      throw SystemError(std::string("cannot map the file: ") + std::strerror(errno), path,
                        "free memory, or lift the limit of address space (ulimit -v)");
    }
    data_ = static_cast<const std::byte*>(map);
  }
  try {
    refuse_stand_in(text().substr(0, std::min<size_t>(size_, 256)), path);
  } catch (...) {
    MappedFile discarded(std::move(*this));
    throw;
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string_view MappedFile::text() const {
  if (data_ == nullptr) return {};
  return {reinterpret_cast<const char*>(data_), size_};
}

bool has_pickle_name(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  if (name.starts_with("pytorch_model") && name.ends_with(".bin")) return true;
  static constexpr std::array<std::string_view, 4> kEndings = {".pt", ".pth", ".ckpt", ".pkl"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view ending) { return path.ends_with(ending); });
}

void refuse_stand_in(std::string_view head, const std::string& path) {
  if (head.starts_with("version https://git-lfs")) {
    throw UserError("this is a Git LFS pointer, not the file that it stands for", path,
                    "fetch the real file, for example with `git lfs pull`");
  }
  const bool zip = head.starts_with("PK\x03\x04");
  const bool pickle = head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  const bool pickled_bytes = pickle && !path.ends_with(".safetensors");  // there, two bytes of a header length
  if (zip || pickled_bytes || has_pickle_name(path)) {
    throw UserError("this is a PyTorch pickle, which runs code when it is loaded, so it is refused", path,
                    "convert the checkpoint to safetensors or GGUF");
  }
}

uint64_t fnv1a(std::span<const std::byte> bytes, uint64_t hash) {
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

uint64_t fnv1a_sampled(std::span<const std::byte> data, uint64_t hash) {
  if (data.size() <= kSamples * kSampleBytes) return fnv1a(data, hash);
  const size_t last = data.size() - kSampleBytes;
  for (size_t i = 0; i < kSamples; ++i) {
    hash =
        fnv1a(data.subspan(last / (kSamples - 1) * i + last % (kSamples - 1) * i / (kSamples - 1), kSampleBytes), hash);
  }
  return hash;
}

}  // namespace shardscope::runtime
