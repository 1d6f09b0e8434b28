// MathLibrary: who computes exp, sin, pow and their like. Versions may differ in the last bit.
//
// Thread:     any.
// Memory:     none.
// Cost:       none.
// Not here:   vector instructions (device/simd_target).
#pragma once

#include <string>

namespace stemma {

// "glibc 2.36": that of the process, whatever it was built with. Part of a namespace, because
// angles of positions and scores of experts come from there.
std::string math_library_name();

}  // namespace stemma
