// What libshardscope_cuda.so offers: one function with a C name.
#include "parallel/cuda/library.hpp"

extern "C" __attribute__((visibility("default"))) const shardscope::parallel::CudaLibrary* shardscope_cuda_library() {
  static const shardscope::parallel::CudaLibrary library = shardscope::parallel::make_cuda_library();
  return &library;
}
