# Host code of parallel/ that uses CUDA and NCCL: linked to the real libraries or, in tests, to their stand-ins.
set(parallel_cuda_sources "")
foreach(source proof nccl_check nccl_session nccl_sum peer_copies peer_facts peer_memory peer_group peer_sum device_ways sum_timer sum_choice device_communicator device_sum_bench call_notes library)
  list(APPEND parallel_cuda_sources ${CMAKE_CURRENT_LIST_DIR}/${source}.cpp)
endforeach()
