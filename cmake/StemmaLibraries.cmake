# What engines of others link: two libraries, three in a build with CUDA, installed and packaged.
#
#   stemma::core   libstemma        pools, caches, host memory; C++ and C. Needs libcrypto and Highway
#   stemma::tiers  libstemma_tiers  page stores on disk and in Redis. Needs stemma::core and liburing
#   stemma::cuda   libstemma_cuda   pools on a GPU. Needs stemma::core; the shared one has CUDA's runtime in it
#
# Each is built shared and static, or only as BUILD_SHARED_LIBS says where it is set. A shared one exports the C ABI under the
# symbol version STEMMA_<abi>, which stays, and what the public C++ headers declare under STEMMA_CXX_<version>, which is
# another in every version: C++ programs are linked anew.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Objects of rooms that belong to a component, as a list for add_library.
function(stemma_component_objects variable)
  set(objects)
  foreach(room ${ARGN})
    list(APPEND objects $<TARGET_OBJECTS:stemma_${room}>)
  endforeach()
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()

# One library of one kind. NEEDS: what a program that links it links too.
function(stemma_component_library name kind output)
  cmake_parse_arguments(LIBRARY "" "" "OBJECTS;PRIVATE;NEEDS" ${ARGN})
  add_library(${name} ${kind} ${LIBRARY_OBJECTS})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${output} LINKER_LANGUAGE CXX EXPORT_NAME ${name})
  target_include_directories(${name} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${name} INTERFACE cxx_std_20)
  if(kind STREQUAL "SHARED")
    set(script ${CMAKE_BINARY_DIR}/${output}.map)
    configure_file(${CMAKE_SOURCE_DIR}/cmake/${output}.map.in ${script} @ONLY)
    set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${STEMMA_ABI_VERSION}
                          LINK_DEPENDS ${script})
    target_link_libraries(${name} PUBLIC ${LIBRARY_NEEDS} PRIVATE ${LIBRARY_PRIVATE})
    target_link_options(${name} PRIVATE -Wl,--version-script=${script} -Wl,--as-needed -Wl,--no-undefined)
  else()
    target_link_libraries(${name} INTERFACE ${LIBRARY_NEEDS})
  endif()
endfunction()

function(stemma_libraries)
  if(STEMMA_SANITIZE)
    return()  # what they are made of is tested room by room
  endif()
  set(kinds shared static)
  if(DEFINED BUILD_SHARED_LIBS)
    if(BUILD_SHARED_LIBS)
      set(kinds shared)
    else()
      set(kinds static)
    endif()
  endif()
  set(store_sources "bindings/(c|embed)_stores\\.cc")
  stemma_component_objects(rooms base alloc device prefix pool tier cache)
  stemma_component_objects(cache cache)
  stemma_component_objects(stores store)
  set(core $<FILTER:$<TARGET_OBJECTS:stemma_bindings>,EXCLUDE,${store_sources}>)
  set(tiers $<FILTER:$<TARGET_OBJECTS:stemma_bindings>,INCLUDE,${store_sources}>)
  set(core_system OpenSSL::Crypto Threads::Threads hwy)
  foreach(kind ${kinds})
    if(kind STREQUAL "shared")
      # All of the cache, whose methods engines call; of the other rooms' archives the linker takes what is needed.
      stemma_component_library(core_shared SHARED stemma OBJECTS ${core} ${cache} PRIVATE stemma_cache)
      stemma_component_library(tiers_shared SHARED stemma_tiers OBJECTS ${tiers} NEEDS core_shared PRIVATE stemma_store)
    else()
      stemma_component_library(core_static STATIC stemma OBJECTS ${core} ${rooms} NEEDS ${core_system})
      stemma_component_library(tiers_static STATIC stemma_tiers OBJECTS ${tiers} ${stores} NEEDS core_static uring)
    endif()
    list(APPEND installed core_${kind} tiers_${kind})
  endforeach()
  stemma_cuda_component(${kinds})
  stemma_install(${installed})
  stemma_c_tests()
endfunction()

# The component cuda: of the rooms of a GPU what pools need, without products of matrices.
function(stemma_cuda_component)
  if(NOT STEMMA_ENABLE_CUDA)
    return()
  endif()
  set(c_pool $<TARGET_OBJECTS:stemma_bindings_cuda_host>)
  set(c_options $<FILTER:$<TARGET_OBJECTS:stemma_bindings>,INCLUDE,bindings/c_pool_options\\.cc>)  # libstemma hides its own
  set(pools)
  foreach(objects device_cuda device_cuda_host pool_cuda pool_cuda_host)
    list(APPEND pools "$<FILTER:$<TARGET_OBJECTS:stemma_${objects}>,EXCLUDE,_bench\\.cc|gemm|rank>")
  endforeach()
  foreach(kind ${ARGN})
    if(kind STREQUAL "shared")
      stemma_component_library(cuda_shared SHARED stemma_cuda OBJECTS ${c_pool} ${c_options} NEEDS core_shared
                               PRIVATE stemma_pool_cuda stemma_device_cuda)
    else()
      stemma_component_library(cuda_static STATIC stemma_cuda OBJECTS ${c_pool} ${pools} NEEDS core_static CUDA::cudart_static)
      # The archive of the room cuda is called so too.
      set_target_properties(cuda_static PROPERTIES ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/component)
    endif()
    stemma_install_targets(stemmaCuda cuda_${kind})
    add_dependencies(gpu_tests core_${kind} tiers_${kind} cuda_${kind})
  endforeach()
endfunction()

# tests/c/: programs in C99 that link what an engine links. They run as tests.
function(stemma_c_tests)
  if(NOT STEMMA_TESTS)
    return()
  endif()
  add_executable(c_life ${CMAKE_SOURCE_DIR}/tests/c/life.c)
  set_target_properties(c_life PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(c_life PRIVATE -Wall -Wextra -Wpedantic -Werror)
  target_link_libraries(c_life PRIVATE $<IF:$<TARGET_EXISTS:core_shared>,core_shared,core_static>)
  add_test(NAME c_life COMMAND c_life)
  # What is installed, from outside.
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME packaging COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/packaging/installed_test.py ${CMAKE_BINARY_DIR})
  # The C ABI is what it was (tests/golden/c_abi_*.txt).
  add_test(NAME c_abi_can_fail COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/c_abi_test.py)
  if(TARGET core_shared)
    add_test(NAME c_abi COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/c_abi.py ${CMAKE_BINARY_DIR})
  endif()
endfunction()

# Libraries, and EXPORTTargets.cmake, from which find_package has them.
function(stemma_install_targets export)
  install(TARGETS ${ARGN} EXPORT ${export}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
endfunction()

# Components of the installation: runtime (shared libraries), development (headers and what links them), command.
function(stemma_install)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/stemma)
  stemma_install_targets(stemma ${ARGN})
  set(exports stemma)
  if(STEMMA_ENABLE_CUDA)
    list(APPEND exports stemmaCuda)  # apart: what it names, only engines with a GPU look for
  endif()
  foreach(export ${exports})
    install(EXPORT ${export} NAMESPACE stemma:: FILE ${export}Targets.cmake DESTINATION ${package_dir} COMPONENT development)
  endforeach()
  configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/stemmaConfig.cmake.in ${CMAKE_BINARY_DIR}/stemmaConfig.cmake
                                INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/stemmaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/stemmaConfig.cmake ${CMAKE_BINARY_DIR}/stemmaConfigVersion.cmake
          DESTINATION ${package_dir} COMPONENT development)
  file(RELATIVE_PATH STEMMA_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)  # so that an installation can be moved
  set(pkg_configs stemma stemma-tiers)
  if(TARGET cuda_shared)
    list(APPEND pkg_configs stemma-cuda)
  endif()
  foreach(name ${pkg_configs})
    configure_file(${CMAKE_SOURCE_DIR}/cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
  endforeach()
  # The headers of engines and models are not among them.
  set(headers c c_cuda c_events c_loans c_tenants c_windows cuda_pool device embed ids kv_batch kv_cache kv_pool kv_shape log
      lower_tiers metrics options page_allocator page_store page_table prefix_cache result sequence thread_role version)
  list(TRANSFORM headers REPLACE "(.+)" "${CMAKE_SOURCE_DIR}/include/stemma/\\1.h")
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/stemma COMPONENT development)
  install(TARGETS stemma RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  # What the command serves where no model is named, and what shows how it does.
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/scribe-3m DESTINATION ${CMAKE_INSTALL_DATADIR}/stemma/models COMPONENT command)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/grafana DESTINATION ${CMAKE_INSTALL_DATADIR}/stemma COMPONENT command)
  # Where Debian looks for the terms of each of its packages.
  foreach(part runtime:libstemma${STEMMA_ABI_VERSION} development:libstemma-dev command:stemma)
    string(REPLACE ":" ";" part ${part})
    list(GET part 0 component)
    list(GET part 1 package)
    install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright
            COMPONENT ${component})
  endforeach()
endfunction()
