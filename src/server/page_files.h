// PageFiles: the page for the browser, as it lies in src/server/page/: the build puts its files
// into the program.
//
// Thread:     constants.
// Memory:     literals.
// Cost:       none.
// Not here:   what the page shows (api_page, api_tree), who may see it (api_service).
#pragma once

#include <span>
#include <string_view>

namespace stemma {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view text;
};

std::span<const PageFile> page_files();

}  // namespace stemma
