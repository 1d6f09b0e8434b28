# The parts of rooms that run on a GPU (src/device/cuda_dialect.h says how kernels are written).
#
#   x.cu          kernels: compiled for a GPU into stemma_ROOM_cuda, where STEMMA_ENABLE_CUDA says so, and always, by the C++
#                 compiler for the emulated GPU, into stemma_ROOM_simt
#   x_native.cu   only for a GPU: what calls the CUDA runtime and its libraries
#   simt*.cc      only for the emulated one
#   x_cuda_test.cc, x_cuda_test.cu  tests of both: ROOM_simt_test, always, and ROOM_cuda_test, which is skipped where there is
#                 no GPU; of rooms without kernels too, which use those of others
#   x_cuda_bench.cc  what ROOM_cuda_bench measures, on a GPU alone
#
# Classes of the host (cuda_*.cc) are in the room's own library; what they need of a GPU is linked by the program.
set(STEMMA_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "What kernels are compiled for")

if(STEMMA_ENABLE_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${STEMMA_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
  if(STEMMA_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${STEMMA_CCACHE})
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that newer compilers can
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
  add_custom_target(gpu_tests)  # every ROOM_cuda_test
endif()
if(STEMMA_TESTS)
  find_package(Boost 1.81 REQUIRED COMPONENTS context)
endif()

# Sources that include each of `kernels`, for the C++ compiler.
function(stemma_simt_sources room variable)
  set(sources)
  foreach(kernel ${ARGN})
    get_filename_component(stem ${kernel} NAME_WE)
    set(source ${CMAKE_BINARY_DIR}/simt/${room}_${stem}.cc)
    file(GENERATE OUTPUT ${source} CONTENT "#include \"${room}/${stem}.cu\"\n")
    list(APPEND sources ${source})
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# The targets of `rooms` for one flavour (simt, cuda), those that there are, each with its room.
function(stemma_cuda_libraries flavour variable)
  set(libraries)
  foreach(room ${ARGN})
    if(TARGET stemma_${room}_${flavour})
      # Whole: objects of the room's own library, further back, ask for what is in them.
      list(APPEND libraries stemma_${room} "$<LINK_LIBRARY:WHOLE_ARCHIVE,stemma_${room}_${flavour}>")
    endif()
  endforeach()
  set(${variable} ${libraries} PARENT_SCOPE)
endfunction()

function(stemma_cuda_test name flavour)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*_cuda_test.cc)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*_cuda_test.cu)
  if(NOT STEMMA_TESTS OR NOT tests)
    return()
  endif()
  if(flavour STREQUAL "simt")
    stemma_simt_sources(${name} kernels ${kernels})
  endif()
  set(program ${name}_${flavour}_test)
  stemma_cuda_libraries(${flavour} libraries ${name} ${ARGN})
  add_executable(${program} ${tests} ${kernels})
  target_link_libraries(${program} PRIVATE stemma_${name} ${libraries} GTest::gtest GTest::gmock GTest::gtest_main rapidcheck)
  target_compile_definitions(${program} PRIVATE STEMMA_SOURCE_DIR=".")
  if(flavour STREQUAL "simt")
    target_compile_definitions(${program} PRIVATE STEMMA_SIMT=1)
  else()
    add_dependencies(gpu_tests ${program})
  endif()
  stemma_add_test(${name}_${flavour} ${program})
endfunction()

# ROOM_cuda_bench: what a room measures on a GPU (src/device/cuda_bench.h). Part of gpu_tests, so that it is built with them.
function(stemma_cuda_bench name)
  file(GLOB benches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*_cuda_bench.cc)
  if(NOT benches)
    return()
  endif()
  set(cli ${CMAKE_SOURCE_DIR}/src/cli)
  stemma_cuda_libraries(cuda libraries ${name} ${ARGN})
  add_executable(${name}_cuda_bench ${benches} ${cli}/cuda_bench_main.cc ${cli}/bench_output.cc)
  target_link_libraries(${name}_cuda_bench PRIVATE stemma_${name} ${libraries} nlohmann_json::nlohmann_json)
  add_dependencies(gpu_tests ${name}_cuda_bench)
endfunction()

# Called by stemma_room for every room, with the rooms that it depends on.
function(stemma_cuda_room name)
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cu)
  file(GLOB emulation CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/simt*.cc)
  list(FILTER kernels EXCLUDE REGEX "_test\\.cu$")
  if(STEMMA_TESTS)
    if(kernels OR emulation)
      set(shared ${kernels})
      list(FILTER shared EXCLUDE REGEX "_native\\.cu$")
      stemma_simt_sources(${name} sources ${shared})
      add_library(stemma_${name}_simt STATIC ${emulation} ${sources})
      target_link_libraries(stemma_${name}_simt PUBLIC stemma_${name} Boost::context)
    endif()
    stemma_cuda_test(${name} simt ${ARGN})
  endif()
  if(STEMMA_ENABLE_CUDA)
    if(kernels)
      add_library(stemma_${name}_cuda STATIC ${kernels})
      target_link_libraries(stemma_${name}_cuda PUBLIC stemma_${name} CUDA::cudart_static CUDA::cublas)
    endif()
    stemma_cuda_test(${name} cuda ${ARGN})
    stemma_cuda_bench(${name} ${ARGN})
  endif()
endfunction()
