# A test program as a test. glibc gives back nothing meanwhile: where the end of its heap happens to lie so that it does, and
# asks for it again, over and over, a test of 3 s takes 40 on a virtual machine.
function(stemma_add_test name program)
  add_test(NAME ${name} COMMAND ${program} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  stemma_test_environment(${name})
  set(kept glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1073741824:glibc.malloc.top_pad=1048576)
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT GLIBC_TUNABLES=${kept})
endfunction()

# What it writes for itself goes below the build, so that the tests of two builds, run at once, do not meet in /tmp.
function(stemma_test_environment name)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/test_files)
  set(environment TEST_TMPDIR=${CMAKE_BINARY_DIR}/test_files/)
  if(STEMMA_SANITIZE STREQUAL "thread")
    list(APPEND environment TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tools/tsan_suppressions)
  elseif(STEMMA_SANITIZE MATCHES "address")
    list(APPEND environment LSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tools/lsan_suppressions)
  endif()
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${environment}")
endfunction()

# Sources of test programs: what they test is compiled as it is used, they themselves in two thirds of the time.
function(stemma_test_sources)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -Og)
endfunction()

# A library with headers of others, precompiled for sources that are compiled with these options: compilers take such headers
# for no others, or break (GCC 12, at another level of optimisation).
#
#   HEADERS <x>...  LIBS target...  OPTIONS option...
function(stemma_precompile name)
  cmake_parse_arguments(PRE "" "" "HEADERS;LIBS;OPTIONS" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/${name}.cc)
  file(GENERATE OUTPUT ${source} CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE stemma_flags ${PRE_LIBS})
  target_compile_options(${name} PRIVATE ${PRE_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${PRE_HEADERS})
  stemma_cache_precompiled(${name})
  if(STEMMA_CCACHE)
    stemma_sum_precompiled_headers(${name} "${PRE_HEADERS}" "${PRE_LIBS}")
  endif()
endfunction()

# A target takes the headers that the library `from` has.
function(stemma_use_precompiled name from)
  stemma_cache_precompiled(${name})
  target_precompile_headers(${name} REUSE_FROM ${from})
endfunction()

# A compiler cache is told that it may keep what used precompiled headers: they depend neither on the time nor on what targets
# define.
function(stemma_cache_precompiled name)
  if(STEMMA_CCACHE)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;CCACHE_PCH_EXTSUM=1;${STEMMA_CCACHE}")
  endif()
endfunction()

# GoogleTest's headers, for tests that are compiled with the options that follow. Without, they are a third of what compiling
# tests takes.
function(stemma_precompile_test_headers name)
  stemma_precompile(${name} HEADERS <gmock/gmock-matchers.h> <gtest/gtest.h> LIBS GTest::gtest GTest::gmock OPTIONS ${ARGN})
  stemma_test_target(${name})
endfunction()

# What sources of rooms include most of others, for builds with a sanitizer: a fifth of what compiling them takes with clang.
# GCC takes as long to load them.
function(stemma_common_headers)
  if(STEMMA_SANITIZE)
    stemma_precompile(common_headers HEADERS <algorithm> <array> <atomic> <chrono> <condition_variable> <filesystem>
                      <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string>
                      <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <nlohmann/json.hpp>
                      LIBS nlohmann_json::nlohmann_json)
  endif()
endfunction()

# Of a library of a room. Its kernels are compiled with other options.
function(stemma_use_common_headers name)
  if(TARGET common_headers)
    stemma_use_precompiled(${name} common_headers)
  endif()
endfunction()

# CMake has clang name the text beside the precompiled headers, too, by a path that a compiler cache takes as it is.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -include-pch <PCH_FILE>)
endif()

# What a compiler cache takes for the headers that a library precompiles (.sum beside them): the text of all that they
# include. Without, it takes the precompiled file, in which clang writes where the build lies, and no other checkout would
# find what one compiled.
function(stemma_sum_precompiled_headers name headers libs)
  set(source ${CMAKE_BINARY_DIR}/${name}_sum.cc)
  list(TRANSFORM headers PREPEND "#include " OUTPUT_VARIABLE lines)
  list(JOIN lines "\n" lines)
  file(WRITE ${source} "${lines}\n")
  set(folders)
  foreach(lib ${libs})
    get_target_property(of_lib ${lib} INTERFACE_INCLUDE_DIRECTORIES)
    if(of_lib)
      list(APPEND folders ${of_lib})
    endif()
  endforeach()
  list(TRANSFORM folders PREPEND -I)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 ${folders} -E -P ${source}
                  OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "headers that are to be precompiled: ${error}")
  endif()
  string(SHA256 sum "${text}")
  foreach(suffix gch pch)
    file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/${name}.dir/cmake_pch.hxx.${suffix}.sum "${sum}\n")
  endforeach()
endfunction()

# Of a target of tests: it takes GoogleTest's headers from the library that follows, if one does. Programs and libraries of
# objects are compiled alike, so that both can.
function(stemma_test_target name)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  if(ARGN)
    stemma_use_precompiled(${name} ${ARGN})
  endif()
endfunction()

# test_headers, and what tests of a GPU use: with the address sanitizer these are not optimised, as kernels take the time to
# compile, and clang a third less of it then.
function(stemma_test_headers)
  if(NOT STEMMA_TESTS)
    return()
  endif()
  stemma_precompile_test_headers(test_headers -Og)
  set(for_gpu test_headers)
  if(STEMMA_SANITIZE MATCHES "address")
    set(for_gpu gpu_test_headers)
    stemma_precompile_test_headers(${for_gpu} -O0)
  endif()
  set(STEMMA_GPU_TEST_HEADERS ${for_gpu} PARENT_SCOPE)
endfunction()

# Which tests begin first where several run at a time: those that take longest. What measures times, or needs every core, runs
# alone.
function(stemma_test_order)
  set(longest cuda_simt tests_gpu attention_simt tests_transparency clients tests_sim gpu_programs attention tests_tiers store
      replay)
  set(alone clients_timed tests_server tests_ranks ranks)
  set(cost 100)
  foreach(test ${longest})
    if(TEST ${test})
      set_tests_properties(${test} PROPERTIES COST ${cost})
    endif()
    math(EXPR cost "${cost} - 1")
  endforeach()
  foreach(test ${alone})
    if(TEST ${test})
      set_tests_properties(${test} PROPERTIES RUN_SERIAL TRUE)
    endif()
  endforeach()
endfunction()

# With threads watched, attention's bits are compared over chunks, batches and threads; its arithmetic other builds compare.
function(stemma_threads_alone)
  if(STEMMA_SANITIZE STREQUAL "thread" AND TEST attention)
    set_property(TEST attention APPEND PROPERTY ENVIRONMENT GTEST_FILTER=-*EqualsTheReference*:*KeepsItsAccuracy*)
  endif()
endfunction()

# The libraries of the rooms whose headers `files` include: a program is built as soon as these are.
function(stemma_included_rooms variable)
  set(rooms)
  foreach(file ${ARGN})
    file(STRINGS ${file} includes REGEX "^#include \"[a-z]+/")
    list(TRANSFORM includes REPLACE "^#include \"([a-z]+)/.*" "stemma_\\1")
    foreach(room ${includes})
      if(TARGET ${room})
        list(APPEND rooms ${room})
      endif()
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES rooms)
  set(${variable} ${rooms} PARENT_SCOPE)
endfunction()

# stemma_room(NAME DEPS room... LIBS target...)
#
# One folder of src/ is one room: a static library stemma_NAME of its *.cc, and a test program NAME_test of its
# *_test.cc. Its benchmarks (*_bench.cc) are a library of their own, stemma_NAME_bench, which only its tests and
# `stemma bench` link. Tests run in the root of the checkout and name files from there, so that an object file is the same
# wherever the checkout lies (and a compiler cache finds it).
function(stemma_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  set(tests ${sources})
  set(benches ${sources})
  set(elsewhere "_test|_fuzz|_bench|/main|/simt[a-z_]*|mpi_ranks|nccl_ranks|(open|no)_cuda_backend|no_cuda_pool|(no|with)_emulated_gpu|named_backend|/cuda_[a-z_]+")
  list(FILTER sources EXCLUDE REGEX "(${elsewhere})\\.cc$")  # other targets have these
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER benches EXCLUDE REGEX "_cuda_bench\\.cc$|/cuda_[a-z_]+\\.cc$")  # stemma_cuda_room
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER tests EXCLUDE REGEX "(_cuda_test|/mpi_ranks_test)\\.cc$")  # stemma_cuda_room, stemma_ranks_tests
  set(ROOM_NAMES ${ROOM_DEPS})
  list(TRANSFORM ROOM_DEPS PREPEND stemma_)
  set(kernels ${sources})
  list(FILTER kernels INCLUDE REGEX "_cpu\\.cc$")
  set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS ${STEMMA_KERNEL_OPTIONS})
  set_property(SOURCE ${kernels} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
  if(sources)
    stemma_united(${name} units ${sources})
    add_library(stemma_${name} STATIC ${units})
    target_link_libraries(stemma_${name} PUBLIC stemma_flags ${ROOM_DEPS} ${ROOM_LIBS})
    stemma_use_common_headers(stemma_${name})
  else()
    add_library(stemma_${name} INTERFACE)
    target_link_libraries(stemma_${name} INTERFACE stemma_flags ${ROOM_DEPS} ${ROOM_LIBS})
  endif()
  set(measured)
  if(benches)
    set(measured stemma_${name}_bench)
    stemma_united(${measured} units ${benches})
    add_library(${measured} STATIC ${units})
    target_link_libraries(${measured} PUBLIC stemma_${name})
    stemma_use_common_headers(${measured})
    set_property(GLOBAL APPEND PROPERTY STEMMA_BENCHES ${measured})
  endif()
  if(STEMMA_TESTS AND tests)
    stemma_united(${name}_test units ${tests})
    stemma_test_sources(${units})
    add_executable(${name}_test ${units})
    target_link_libraries(${name}_test PRIVATE ${measured} stemma_${name} GTest::gtest GTest::gmock GTest::gtest_main rapidcheck)
    target_compile_definitions(${name}_test PRIVATE STEMMA_SOURCE_DIR=".")
    stemma_test_target(${name}_test test_headers)
    stemma_add_test(${name} ${name}_test)
  endif()
  stemma_cuda_room(${name} ${ROOM_NAMES})
endfunction()

# Ranks as processes (device/mpi_ranks): a library of its own, so that only programs that run ranks link MPI. Without MPI it
# holds what says so.
function(stemma_ranks)
  set(source no_mpi_ranks.cc)
  if(STEMMA_MPI)
    set(source mpi_ranks.cc)
  endif()
  add_library(stemma_ranks STATIC ${CMAKE_SOURCE_DIR}/src/device/${source})
  target_link_libraries(stemma_ranks PUBLIC stemma_device)
  if(STEMMA_MPI)
    target_compile_definitions(stemma_ranks PRIVATE OMPI_SKIP_MPICXX)  # the C API alone
    target_link_libraries(stemma_ranks PRIVATE MPI::MPI_C)
  endif()
endfunction()

# Ranks as processes: device/mpi_ranks_test.cc on two ranks, and tests/ranks, which starts the command so. Without mpirun both
# say so and are skipped. Not of sanitized builds, which would report what MPI itself leaves behind.
function(stemma_ranks_tests)
  if(NOT STEMMA_TESTS OR NOT STEMMA_MPI OR STEMMA_SANITIZE)
    return()
  endif()
  stemma_test_sources(${CMAKE_SOURCE_DIR}/src/device/mpi_ranks_test.cc)
  add_executable(ranks_test ${CMAKE_SOURCE_DIR}/src/device/mpi_ranks_test.cc)
  target_link_libraries(ranks_test PRIVATE stemma_ranks GTest::gtest)
  add_test(NAME ranks COMMAND ${CMAKE_SOURCE_DIR}/tests/ranks/run $<TARGET_FILE:ranks_test>)
  set_tests_properties(ranks PROPERTIES SKIP_RETURN_CODE 77)
  # Any user, machines of one core, containers without ptrace.
  set_property(TEST ranks tests_ranks APPEND PROPERTY ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none)
endfunction()

# The page that `stemma serve` shows in a browser (src/server/page/), as a source of the server. Nothing but CMake is needed.
function(stemma_page)
  set(folder ${CMAKE_SOURCE_DIR}/src/server/page)
  set(names index.html icon.svg page.css page.js parts.js tree.js chat.js)
  list(TRANSFORM names PREPEND ${folder}/ OUTPUT_VARIABLE files)
  set(script ${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake)
  set(source ${CMAKE_BINARY_DIR}/page_files.cc)
  add_custom_command(OUTPUT ${source} DEPENDS ${files} ${script} VERBATIM
                     COMMAND ${CMAKE_COMMAND} -DFOLDER=${folder} "-DNAMES=${names}" -DOUTPUT=${source} -P ${script})
  target_sources(stemma_server PRIVATE ${source})
endfunction()

# What `stemma bench` measures: every room's benchmarks.
function(stemma_benches)
  get_property(benches GLOBAL PROPERTY STEMMA_BENCHES)
  target_link_libraries(stemma_cli PUBLIC ${benches})
endfunction()

# The command `stemma`.
function(stemma_program)
  if(EXISTS ${CMAKE_SOURCE_DIR}/src/cli/main.cc)
    add_executable(stemma ${CMAKE_SOURCE_DIR}/src/cli/main.cc)
    target_link_libraries(stemma PRIVATE stemma_cli)
  endif()
endfunction()

# tests/: whole-system tests, one program a folder; test helpers live beside the tests. An engine is linked, and what they
# include of the rooms above it.
function(stemma_whole_system_tests)
  if(NOT STEMMA_TESTS)
    return()
  endif()
  file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true ${CMAKE_SOURCE_DIR}/tests/*)
  list(FILTER folders EXCLUDE REGEX "/tests/gpu$")  # stemma_gpu_tests
  if(STEMMA_SANITIZE)
    list(FILTER folders EXCLUDE REGEX "/tests/(server|ranks)$")  # as stemma_client_tests, stemma_ranks_tests
  endif()
  foreach(folder ${folders})
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cc)
    if(sources)
      get_filename_component(name ${folder} NAME)
      file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
      stemma_included_rooms(rooms ${sources} ${headers})
      stemma_united(tests_${name} units ${sources})
      stemma_test_sources(${units})
      add_executable(tests_${name} ${units})
      target_link_libraries(tests_${name} PRIVATE ${rooms} stemma_engine GTest::gtest GTest::gmock GTest::gtest_main rapidcheck)
      target_include_directories(tests_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
      file(RELATIVE_PATH binary_dir ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
      target_compile_definitions(tests_${name} PRIVATE STEMMA_SOURCE_DIR="." STEMMA_BINARY_DIR="${binary_dir}")
      stemma_test_target(tests_${name} test_headers)
      stemma_add_test(tests_${name} tests_${name})
    endif()
  endforeach()
endfunction()

# fuzz/: one libFuzzer program a *_fuzz.cc, corpus in fuzz/corpus/<name>/. Plain builds compile all of them too, into one test that
# gives each its corpus: none stops compiling, and what was found stays fixed, without a fuzzer.
function(stemma_fuzz_targets)
  if(NOT STEMMA_FUZZ)
    stemma_fuzz_corpus_test()
    return()
  endif()
  # No target computes attention, whose kernels take minutes to compile with a fuzzer's counters.
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/attention/attention_cpu.cc
                              ${CMAKE_SOURCE_DIR}/src/attention/latent_attention_cpu.cc
                              ${CMAKE_SOURCE_DIR}/src/attention/sparse_cpu.cc
                              PROPERTIES COMPILE_OPTIONS "-fno-sanitize=all")
  add_custom_target(fuzz_targets)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/fuzz/*_fuzz.cc)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    stemma_included_rooms(rooms ${source})
    target_link_libraries(${name} PRIVATE ${rooms})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz_targets ${name})
  endforeach()
endfunction()

function(stemma_fuzz_corpus_test)
  if(NOT STEMMA_TESTS OR STEMMA_SANITIZE)
    return()
  endif()
  set(table ${CMAKE_BINARY_DIR}/fuzz_targets.inc)
  set(lines)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/fuzz/*_fuzz.cc)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    string(APPEND lines "FUZZ_TARGET(${name})\n")
    set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS LLVMFuzzerTestOneInput=${name})
  endforeach()
  file(CONFIGURE OUTPUT ${table} CONTENT "${lines}" @ONLY)
  stemma_included_rooms(rooms ${sources})
  set(main ${CMAKE_SOURCE_DIR}/fuzz/corpus_test.cc)
  stemma_test_sources(${sources} ${main})
  add_executable(fuzz_corpus_test ${sources} ${main})
  target_include_directories(fuzz_corpus_test PRIVATE ${CMAKE_BINARY_DIR})
  target_link_libraries(fuzz_corpus_test PRIVATE ${rooms} GTest::gtest GTest::gtest_main)
  stemma_test_target(fuzz_corpus_test test_headers)
  stemma_add_test(fuzz_corpus fuzz_corpus_test)
endfunction()

# The rules of the repository as tests (tools/tidy.py), and the tests of its tools.
function(stemma_repository_tests)
  if(NOT STEMMA_TESTS)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME tidy COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/tidy.py)
  add_test(NAME tidy_can_fail COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/tidy_test.py)
  add_test(NAME alone_can_fail COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/alone_test.py)
  add_test(NAME gpu_check COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/gpu_check_test.py)
  add_test(NAME performance_tables COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/performance_tables_test.py)
  add_test(NAME training_formats COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/train_model/formats_test.py)
  add_test(NAME test_models COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/make_test_models_test.py)
endfunction()

# tests/clients/: programs of others against `stemma serve`, run by node's own test runner. Without node, or without the
# packages of package.json (tools/install_packages), the tests say so and are skipped. Not of sanitized builds, which are too
# slow for clients that measure times: what they run is the rooms' own tests.
function(stemma_client_tests)
  if(NOT STEMMA_TESTS OR STEMMA_SANITIZE)
    return()
  endif()
  set(folder tests/clients)
  set(timed ${folder}/tenants.test.mjs)  # what is cached shows in how long answers take
  file(GLOB others CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${folder}/*.test.mjs)
  list(REMOVE_ITEM others ${timed})
  set(run ${CMAKE_SOURCE_DIR}/${folder}/run $<TARGET_FILE:stemma>)
  add_test(NAME clients COMMAND ${run} ${others})
  add_test(NAME clients_timed COMMAND ${run} ${timed})
  set_tests_properties(clients clients_timed PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600)
endfunction()

# tests/soak/: the program under faults, against itself without a cache.
function(stemma_soak_test)
  if(STEMMA_TESTS)
    add_test(NAME soak COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/soak/soak.py $<TARGET_FILE:stemma>)
    stemma_test_environment(soak)
  endif()
endfunction()

# examples/: what the README shows, compiled and run as tests. They link what an embedder links.
function(stemma_examples)
  if(STEMMA_TESTS)
    add_executable(example_embed ${CMAKE_SOURCE_DIR}/examples/embed.cc)
    target_link_libraries(example_embed PRIVATE stemma_cache)
    add_test(NAME example_embed COMMAND example_embed)
    set_tests_properties(example_embed PROPERTIES PASS_REGULAR_EXPRESSION "turn 1: 96 of 100 tokens are cached")
  endif()
endfunction()
