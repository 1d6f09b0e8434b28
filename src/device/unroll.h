// STEMMA_UNROLL: unrolls the constant loop that follows it completely, so that arrays of vectors
// become registers.
//
// Thread:     none.
// Memory:     none.
// Cost:       code size.
// Not here:   loops whose length is known only at run time.
#pragma once

#if defined(__clang__)
#define STEMMA_UNROLL _Pragma("clang loop unroll(full)")
#else
#define STEMMA_UNROLL _Pragma("GCC unroll 64")
#endif
