// Disk listing: what `stemma inspect DIR` shows of the directory of a disk tier.
//
// Thread:     main.
// Memory:     the index.
// Cost:       reading the index.
// Not here:   the listing (store/disk_check).
#pragma once

#include <string>

#include "stemma/result.h"

namespace stemma {

// Prints the namespaces of the disk tier in `directory`, with their pages, sizes and ages: a line
// each, or a JSON object each. Works beside a running server.
Status print_disk_listing(const std::string& directory, bool json);

}  // namespace stemma
