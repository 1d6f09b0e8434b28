#include "base/wall_clock.h"

#include <chrono>

namespace stemma {

double wall_clock_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace stemma
