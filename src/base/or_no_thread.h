// What starts threads, where a system may have none left: an error as a value.
//
// Thread:     that of the caller.
// Memory:     none.
// Cost:       none where nothing fails.
// Not here:   how many threads may be asked for (thread_count).
#pragma once

#include <system_error>

#include "stemma/result.h"

namespace stemma {

// What `make` gives; kIo where the system refuses a thread of its, kInternal for other errors that
// the library throws. REQUIRES: `make` leaves none behind then.
template <typename Make>
auto or_no_thread(Make&& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::system_error& thrown) {
    if (thrown.code() != std::errc::resource_unavailable_try_again) {
      return Error{ErrorCode::kInternal, thrown.what()};
    }
    return Error{ErrorCode::kIo, "cannot start a thread", thrown.code().value()};
  }
}

}  // namespace stemma
