// The CUDA half of the program, linked to the tests' stand-ins: what shardscope-emulated has instead of the file that
// opens the shared library.
#include <cstdlib>

#include "kernels/cuda/backend.hpp"
#include "parallel/cuda/library.hpp"

namespace shardscope::parallel {
namespace {

/// With little scratch memory: emulated memory is filled and protected page by page, and slabs are cut, as they seldom
/// are on a GPU.
std::unique_ptr<kernels::Backend> small_backend(const cuda::BackendOptions& options) {
  cuda::BackendOptions small = options;
  small.scratch_bytes = 1 << 20;
  small.upload_bytes = 1 << 18;
  return cuda::make_backend(small);
}

CudaLibrary emulated_library() {
  // A node with eight devices that run beside their hosts, unless the environment says otherwise.
  setenv("SHARDSCOPE_EMULATION", "devices=8,policy=worker", /*overwrite=*/0);
  CudaLibrary library = make_cuda_library();
  library.emulated = true;
  library.make_backend = small_backend;
  return library;
}

}  // namespace

CudaLibraryResult cuda_library() {
  static const CudaLibrary library = emulated_library();
  return {&library, ""};
}

}  // namespace shardscope::parallel
