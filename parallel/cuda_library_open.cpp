// Opens libshardscope_cuda.so: beside the program, or in ../lib of it.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "parallel/cuda_library.hpp"

namespace shardscope::parallel {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "libshardscope_cuda.so";

/// A library that is there but lacks another one says which; the loader's text begins with the file that it looked for.
std::string why_not_opened(const std::string& path) {
  const char* text = dlerror();
  return "the CUDA backend cannot be opened: " + std::string(text == nullptr ? path.c_str() : text) +
         ", put the folders of cuBLASLt and NCCL into LD_LIBRARY_PATH, or build it again on this machine";
}

/// NVIDIA's driver brings this library; without it the others, which take a second to open, can do nothing.
bool driver_is_there() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
}

CudaLibraryResult open_library() {
  std::error_code code;
  const fs::path program = fs::read_symlink("/proc/self/exe", code);
  if (code) return {nullptr, "the program cannot find its own folder (/proc/self/exe: " + code.message() + ")"};
  for (const fs::path& path : {program.parent_path() / kName, program.parent_path().parent_path() / "lib" / kName}) {
    if (!fs::exists(path, code)) continue;
    if (!driver_is_there()) {
      return {nullptr, "no NVIDIA driver (libcuda.so.1 cannot be opened), install it, or run where it is"};
    }
    // Never closed: the libraries below it have threads and handlers of their own.
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return {nullptr, why_not_opened(path)};
    void* const entry = dlsym(handle, kCudaLibraryEntry);
    const CudaLibrary* library = entry == nullptr ? nullptr : reinterpret_cast<const CudaLibrary* (*)()>(entry)();
    if (library == nullptr || library->layout != kCudaLibraryLayout) {
      return {nullptr, path.string() + " belongs to another build, build program and library together"};
    }
    return {library, ""};
  }
  return {nullptr, "this build has no CUDA backend, build with the preset cuda"};
}

}  // namespace

CudaLibraryResult cuda_library() {
  static const CudaLibraryResult result = open_library();
  return result;
}

}  // namespace shardscope::parallel
