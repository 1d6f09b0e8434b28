# The version of Stemma and that of its C ABI, from the headers in which they are written: nowhere else.
#   STEMMA_VERSION      kVersion of include/stemma/version.h
#   STEMMA_ABI_VERSION  of include/stemma/c.h; the SOVERSION of the libraries
function(stemma_read_version header pattern variable)
  set(path ${CMAKE_CURRENT_SOURCE_DIR}/include/stemma/${header})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
  file(STRINGS ${path} line REGEX "${pattern}")
  if(NOT line MATCHES "${pattern}")
    message(FATAL_ERROR "${path} says no version: ${pattern}")
  endif()
  set(${variable} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

stemma_read_version(version.h "kVersion = \"([0-9]+\\.[0-9]+\\.[0-9]+)\"" STEMMA_VERSION)
stemma_read_version(c.h "#define STEMMA_ABI_VERSION ([0-9]+)" STEMMA_ABI_VERSION)
