// Read-only memory maps of weight files, and the recognition of files that only stand where weights should be: Git LFS
// pointers and pickles. Who owns: a MappedFile owns its map; spans into it live as long as it does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace shardscope::runtime {

class MappedFile {
 public:
  /// Maps a regular file whole. An empty file gives an empty span. Throws UserError naming the file when it cannot be
  /// opened, is no regular file, or is a stand-in (see refuse_stand_in).
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Throws UserError when `head`, the first bytes of the file `path`, or its name say that it is a Git LFS pointer or a
/// pickle (which runs code when it is loaded, so it never is).
void refuse_stand_in(std::string_view head, const std::string& path);

/// True for file names that PyTorch pickles go by: .bin, .pt, .pth, .ckpt, .pkl.
bool has_pickle_name(std::string_view path);

/// FNV-1a, 64 bits: what reports identify weights by. Chain calls by handing the last result back in.
/// Source: Fowler, Noll, Vo; http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t fnv1a(std::span<const std::byte> bytes, uint64_t hash = 0xcbf29ce484222325U);

inline constexpr size_t kSamples = 64;
inline constexpr size_t kSampleBytes = 4096;

/// FNV-1a over `data` where it has up to kSamples x kSampleBytes, else over kSamples pieces of kSampleBytes, evenly
/// spaced from its first byte to its last. Tells two trainings of one model apart without reading gigabytes; a change
/// of a few values between the pieces goes unseen.
uint64_t fnv1a_sampled(std::span<const std::byte> data, uint64_t hash);

}  // namespace shardscope::runtime
