// Thread roles: "only the engine thread may call this", checked by clang at compile time.
//
// A role is a capability without a lock. A function that carries
// STEMMA_REQUIRES_ROLE(engine_thread) can only be called from one that carries it too, or that has
// called `assume_role`. g++ compiles all of it away.
//
// Thread:     that is the point.
// Memory:     none.
// Cost:       none at run time.
// Not here:   locks (std::mutex in the three places that share state).
#pragma once

#if defined(__clang__)
#define STEMMA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define STEMMA_THREAD_ATTRIBUTE(x)
#endif

#define STEMMA_REQUIRES_ROLE(role) STEMMA_THREAD_ATTRIBUTE(requires_capability(role))

namespace stemma {

class STEMMA_THREAD_ATTRIBUTE(capability("role")) ThreadRole {};

// The thread that owns the control plane: tree, allocator, request table, scheduler.
inline ThreadRole engine_thread;

// States that the calling thread plays `role`: once, where such a thread begins, and in tests.
inline void assume_role([[maybe_unused]] const ThreadRole& role)
    STEMMA_THREAD_ATTRIBUTE(assert_capability(role)) {}

}  // namespace stemma
