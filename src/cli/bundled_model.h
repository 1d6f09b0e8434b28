// Where the bundled model lies.
//
// Thread:     pure functions.
// Memory:     a path.
// Cost:       a few look-ups in the file system.
// Not here:   what is done with it.
#pragma once

#include <string>

namespace stemma {

// The bundled model's directory, beside the program or in the checkout that it was built in; empty
// if there is none.
std::string find_bundled_model();

}  // namespace stemma
