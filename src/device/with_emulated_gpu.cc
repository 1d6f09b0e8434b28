// An emulated GPU from a program's begin to its end: for programs that users run, and that open a
// GPU by its name.
#include <memory>

#include "device/emulated_gpu.h"

namespace stemma {
namespace {

// Never ended: what is on it may be given back later than statics are.
[[maybe_unused]] const EmulatedGpu* const gpu =
    EmulatedGpu::start({.watch = simt::Watch::kNever}).release();

}  // namespace
}  // namespace stemma
