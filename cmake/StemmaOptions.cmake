# Build options and the flags that every target shares.
option(STEMMA_TESTS "Build the tests" ON)
option(STEMMA_UNITED "Compile several sources as one: half of the time for all, more for one" ON)
option(STEMMA_FUZZ "Build the libFuzzer targets (clang only)" OFF)
option(STEMMA_PYTHON "Build the Python package, where its headers are found" ON)
option(STEMMA_ENABLE_CUDA "Build the CUDA rooms (needs nvcc)" OFF)
set(STEMMA_SANITIZE "" CACHE STRING "Value of -fsanitize, for example address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Accesses of kernels on the emulated GPU are watched (src/device/simt_races.h): GCC's calls are the ones that are there.
set(STEMMA_SIMT_RACES OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT STEMMA_SANITIZE)
  set(STEMMA_SIMT_RACES ON)
endif()

find_program(STEMMA_CCACHE ccache)
if(STEMMA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${STEMMA_CCACHE})
endif()

add_library(stemma_flags INTERFACE)
target_include_directories(stemma_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
set(STEMMA_WARNINGS -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast -Wnon-virtual-dtor
    -Woverloaded-virtual -Werror)
target_compile_options(stemma_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${STEMMA_WARNINGS}>"
  # One arithmetic for every call site: a product and a sum are fused only where the source says so (I13).
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off> "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In KiB: what a smaller heap would find that is no longer used is not worth the looking, a tenth of the time.
  target_compile_options(stemma_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=1048576>")
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(stemma_flags INTERFACE -Wthread-safety)
endif()
# For kernels (*_cpu.cc): where a loop of theirs happens to begin in its cache line else decides a fifth of its speed, and
# every edit moves it.
set(STEMMA_KERNEL_OPTIONS -falign-functions=64 -falign-loops=64)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_definitions(stemma_flags INTERFACE _GLIBCXX_ASSERTIONS STEMMA_DEBUG_CHECKS=1)
endif()
if(STEMMA_SANITIZE)
  # These three find little that the address sanitizer does not, and are a third of the compile time.
  target_compile_options(stemma_flags INTERFACE -fsanitize=${STEMMA_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all -fno-sanitize=vptr,object-size,pointer-overflow)
  target_compile_definitions(stemma_flags INTERFACE STEMMA_SANITIZED=1)
  target_link_options(stemma_flags INTERFACE -fsanitize=${STEMMA_SANITIZE})
  if(STEMMA_SANITIZE MATCHES "thread")
    # Tests that count allocations define operator new (base/heap_counter.h), and so does the runtime.
    target_link_options(stemma_flags INTERFACE -Wl,--allow-multiple-definition)
  endif()
endif()
find_program(STEMMA_MOLD mold)
if(STEMMA_MOLD)
  target_link_options(stemma_flags INTERFACE -fuse-ld=mold)
endif()
