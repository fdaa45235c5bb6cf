# How kernels become programs that run without a GPU: emulated_kernels and emulated_program, for use in any folder under
# tests/. Each makes two targets: NAME_plain (fast) and NAME_checked (every load and store of a kernel is looked at).
# Under AddressSanitizer there is only the plain one, which it then instruments.

# The modes of this build.
function(emulation_modes result)
  set(modes plain checked)
  if(SHARDSCOPE_SANITIZE)
    set(modes plain)
  endif()
  set(${result} ${modes} PARENT_SCOPE)
endfunction()

# emulated_kernels(NAME SOURCE…): the shared libraries NAME_plain and NAME_checked of these .cu files.
function(emulated_kernels name)
  # Of this folder only: kernels/cuda/CMakeLists.txt gives the same files to nvcc.
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  emulation_modes(modes)
  foreach(mode IN LISTS modes)
    set(target ${name}_${mode})
    add_library(${target} SHARED ${ARGN})
    target_link_libraries(${target} PRIVATE emulation shardscope_options)
    target_compile_definitions(${target} PRIVATE SHARDSCOPE_EMULATED)
    # A kernel's own copy of an inline function must stay its own: merged with a host object's copy it would lose its
    # hooks, or give hooks to the host. Hence hidden inline functions, no unique symbols, and names bound at link time.
    target_compile_options(${target} PRIVATE -Wno-unknown-pragmas -fvisibility-inlines-hidden -fno-gnu-unique)
    target_link_options(${target} PRIVATE -Wl,-Bsymbolic)
  endforeach()
  if(SHARDSCOPE_SANITIZE)
    # Also counts how often each line runs, for tests/kernels/cuda/coverage.py: here, where time matters least.
    target_compile_options(${name}_plain PRIVATE --coverage)
    target_link_options(${name}_plain PRIVATE --coverage)
  else()
    # DWARF 4: binutils' addr2line up to 2.40 names the wrong file for inline functions in DWARF 5 (a report would then
    # show the .cu where it means a header).
    target_compile_options(${name}_plain PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O2> -gdwarf-4)
    # ThreadSanitizer's instrumentation without its library: never link with -fsanitize=thread. The functions that the
    # instrumented code calls are ours (hooks.cpp), and so are those that stand in for what it would not see.
    target_compile_options(${name}_checked PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1> -gdwarf-4 -fsanitize=thread)
    target_compile_definitions(${name}_checked PRIVATE SHARDSCOPE_CHECKED)
    target_link_options(${name}_checked PRIVATE -Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove)
  endif()
endfunction()

# emulated_program(NAME GROUP KERNELS SOURCE…): the Catch programs NAME_plain and NAME_checked: the same test objects with
# KERNELS_plain or KERNELS_checked. Their cases are tests of ctest named "plain:…" and "checked:…" with one label each:
# GROUP-emulation-unit (so that `ctest -L unit` finds them, under sanitizers too) and GROUP-emulation.
function(emulated_program name group kernels)
  add_library(${name}_objects OBJECT ${ARGN})
  target_link_libraries(${name}_objects PRIVATE emulation shardscope_kernels shardscope_options shardscope_test_main fmt::fmt)
  emulation_modes(modes)
  foreach(mode IN LISTS modes)
    set(target ${name}_${mode})
    add_executable(${target} $<TARGET_OBJECTS:${name}_objects>)
    # Kernels that no test happens to call, too: by them a program knows whether it is the checked one.
    target_link_options(${target} PRIVATE -Wl,--no-as-needed)
    target_link_libraries(${target} PRIVATE ${kernels}_${mode} emulation shardscope_kernels shardscope_test_main fmt::fmt)
    set(label ${group}-emulation)
    if(mode STREQUAL plain)
      set(label ${group}-emulation-unit)
      set_property(GLOBAL APPEND PROPERTY SHARDSCOPE_EMULATED_UNIT_TESTS ${target})
    endif()
    catch_discover_tests(${target} TEST_PREFIX "${mode}:" PROPERTIES LABELS ${label} TIMEOUT 300)
  endforeach()
endfunction()

# use_cuda_host(TARGET…): the product's host code for CUDA (shardscope_cuda_host), its object files as they are, and the
# stand-ins that they call. What it launches, a target with emulated kernels, is the caller's to link.
function(use_cuda_host)
  foreach(target IN LISTS ARGN)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:shardscope_cuda_host>)
    target_link_libraries(${target} PRIVATE shardscope_parallel shardscope_kernels fake_cublaslt fake_nccl emulation)
  endforeach()
endfunction()
