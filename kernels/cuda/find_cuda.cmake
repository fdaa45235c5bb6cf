# Where the CUDA toolkit is: sets SHARDSCOPE_CUDA_ROOT (the folder with bin/nvcc, unless only headers are there) and
# SHARDSCOPE_CUDA_INCLUDES (cuda_runtime.h, cuda_fp16.h, nv/target); both "" if there is none. Only headers are needed
# to build the emulation (tests/emulation); nothing is downloaded here: launch/fetch_cuda does that.

set(SHARDSCOPE_CUDA_TOOLKIT "" CACHE PATH "CUDA toolkit: its headers for tests, its nvcc for SHARDSCOPE_CUDA")

set(SHARDSCOPE_CUDA_ROOT "")
set(SHARDSCOPE_CUDA_INCLUDES "")
if(SHARDSCOPE_CUDA_TOOLKIT)
  set(candidates ${SHARDSCOPE_CUDA_TOOLKIT})  # and no other
else()
  set(candidates ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH})
  find_program(nvcc_on_path nvcc NO_CACHE)
  if(nvcc_on_path)
    get_filename_component(nvcc_folder ${nvcc_on_path} REALPATH)
    get_filename_component(nvcc_folder ${nvcc_folder} DIRECTORY)
    list(APPEND candidates ${nvcc_folder}/..)
  endif()
  list(APPEND candidates /usr/local/cuda)
  # What launch/fetch_cuda left: the folder that launch/lib.sh calls cache_folder.
  foreach(cache $ENV{SHARDSCOPE_CACHE} $ENV{XDG_CACHE_HOME}/shardscope $ENV{HOME}/.cache/shardscope
                ${PROJECT_SOURCE_DIR}/.cache/shardscope)
    file(GLOB fetched ${cache}/cuda-*)
    list(APPEND candidates ${fetched})
  endforeach()
endif()

foreach(root IN LISTS candidates)
  foreach(include ${root}/include ${root}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux/include)
    if(NOT EXISTS ${include}/cuda_runtime.h OR NOT EXISTS ${include}/cuda_fp16.h)
      continue()
    endif()
    file(STRINGS ${include}/cuda_runtime_api.h version REGEX "^#define CUDART_VERSION +[0-9]+" LIMIT_COUNT 1)
    string(REGEX REPLACE ".* " "" version "${version}")
    if(NOT version GREATER_EQUAL 12080)
      continue()
    endif()
    foreach(core ${include}/cccl ${include})
      if(EXISTS ${core}/nv/target)
        get_filename_component(SHARDSCOPE_CUDA_ROOT ${root} REALPATH)
        set(SHARDSCOPE_CUDA_INCLUDES ${include} ${core})
        list(REMOVE_DUPLICATES SHARDSCOPE_CUDA_INCLUDES)
        message(STATUS "CUDA toolkit: ${SHARDSCOPE_CUDA_ROOT} (${version})")
        return()
      endif()
    endforeach()
  endforeach()
endforeach()
