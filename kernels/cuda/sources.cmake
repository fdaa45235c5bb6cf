# The CUDA kernels, each compiled twice: by nvcc (CMakeLists.txt here) and for the emulation (tests/kernels/cuda).
set(cuda_kernel_sources "")
foreach(kernel rms_norm mat_vec decode_attention all_reduce)
  list(APPEND cuda_kernel_sources ${CMAKE_CURRENT_LIST_DIR}/${kernel}.cu)
endforeach()
