// Fibers: what the threads of an emulated team run on, each fiber one thread after another: of one
// that ends, the address sanitizer keeps frames for good, and soon looks through all that it has
// for a free one.
//
// Thread:     the thread's that made it.
// Memory:     256 KiB of address space for each of as many as were taken at once.
// Cost:       a fiber is made once; its stack begins elsewhere in a page than those of others, or
//             the variables of all threads would be in the same few sets of a processor's caches.
// Not here:   what they run, and who resumes them (simt.cc).
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstddef>
#include <utility>
#include <vector>

namespace stemma::simt {

class Fibers {
 public:
  // What each of them does when it is resumed for the first time, given who did. It ends when it is
  // resumed where nothing is to be run.
  using Run = boost::context::fiber (*)(boost::context::fiber&&);

  explicit Fibers(Run run) : run_(run) {}
  // REQUIRES: all came back, and nothing is to be run.
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  boost::context::fiber take();
  void give_back(boost::context::fiber fiber) { idle_.push_back(std::move(fiber)); }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;

  boost::context::fiber make();

  Run run_;
  boost::context::pooled_fixedsize_stack stacks_{kStackBytes};
  std::size_t made_ = 0;
  std::vector<boost::context::fiber> idle_;
};

}  // namespace stemma::simt
