# The CUDA kernels, each compiled twice: by nvcc (CMakeLists.txt here) and for the emulation (tests/kernels/cuda).
set(cuda_kernel_sources "")
foreach(kernel begin_step candidates rows weight_rows rms_norm mat_vec_plain mat_vec_blocks decode_attention prefill_attention
               rope_append peer_proof all_reduce all_reduce_norm exchange_candidates call_times operation_stamps)
  list(APPEND cuda_kernel_sources ${CMAKE_CURRENT_LIST_DIR}/${kernel}.cu)
endforeach()
# Host code beside them, of g++: linked to the real libraries or, in tests, to their stand-ins.
set(cuda_host_sources "")
foreach(source mat_vec backend check cublas_check device device_probe logits matmul owners products recordings resident
               step_timer weight_memory)
  list(APPEND cuda_host_sources ${CMAKE_CURRENT_LIST_DIR}/${source}.cpp)
endforeach()
