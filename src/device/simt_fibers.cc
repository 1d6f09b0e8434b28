#include "device/simt_fibers.h"

#include <boost/context/preallocated.hpp>
#include <memory>
#include <utility>

namespace stemma::simt {

namespace {

constexpr std::size_t kBegins = 64;
constexpr std::size_t kApartBytes = 1024 + 64;  // so that 64 of them lie in all sets of 64 lines

}  // namespace

Fibers::~Fibers() {
  for (boost::context::fiber& fiber : idle_) fiber = std::move(fiber).resume();
}

boost::context::fiber Fibers::take() {
  if (idle_.empty()) return make();
  boost::context::fiber taken = std::move(idle_.back());
  idle_.pop_back();
  return taken;
}

boost::context::fiber Fibers::make() {
  const boost::context::stack_context stack = stacks_.allocate();
  const std::size_t apart_bytes = made_++ % kBegins * kApartBytes;
  const boost::context::preallocated place(static_cast<std::byte*>(stack.sp) - apart_bytes,
                                           stack.size - apart_bytes, stack);
  return {std::allocator_arg, place, stacks_, run_};
}

}  // namespace stemma::simt
