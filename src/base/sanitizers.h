// Which of the compiler's sanitizers watch this build: for tests that such a build cannot run, or
// would run for too long.
//
// Thread:     constants.
// Memory:     none.
// Cost:       none.
// Not here:   STEMMA_SANITIZED, by which kernels are compiled smaller (cmake/StemmaOptions.cmake).
#pragma once

namespace stemma {

#if defined(__has_feature)
inline constexpr bool kAddressesWatched = __has_feature(address_sanitizer) != 0;
inline constexpr bool kThreadsWatched = __has_feature(thread_sanitizer) != 0;
inline constexpr bool kUndefinedWatched = __has_feature(undefined_behavior_sanitizer) != 0;
#else
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressesWatched = true;
#else
inline constexpr bool kAddressesWatched = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadsWatched = true;
#else
inline constexpr bool kThreadsWatched = false;
#endif
inline constexpr bool kUndefinedWatched = false;  // GCC does not say
#endif

}  // namespace stemma
