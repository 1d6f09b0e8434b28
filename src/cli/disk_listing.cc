#include "cli/disk_listing.h"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/digest.h"
#include "cli/json_lines.h"
#include "cli/sizes.h"
#include "prefix/namespace_digest.h"
#include "store/directory_files.h"
#include "store/disk_check.h"

namespace stemma {

namespace {

constexpr std::int64_t kReadingUs = 60'000'000;

void print_json(const DiskListing& listing) {
  for (const DiskNamespace& named : listing.namespaces) {
    nlohmann::ordered_json line;
    line["namespace"] = to_hex(named.digest.bytes);
    line["description"] = named.description;
    line["tier"] = "disk";
    line["pages"] = named.pages;
    line["bytes"] = named.bytes;
    line["oldest_age_s"] = named.oldest_age_s;
    line["newest_age_s"] = named.newest_age_s;
    std::cout << json_line(line) << '\n';
  }
  nlohmann::ordered_json total = {{"namespaces", listing.namespaces.size()},
                                  {"pages", listing.pages},
                                  {"slots", listing.slots},
                                  {"slab_files", listing.slab_files},
                                  {"bytes", listing.bytes}};
  std::cout << nlohmann::ordered_json{{"summary", total}}.dump() << '\n';
}

void print_text(const std::string& directory, const DiskListing& listing) {
  std::cout << fmt::format("{}: {} pages in {} slots, {} slab files, {}\n", directory,
                           listing.pages, listing.slots, listing.slab_files,
                           format_bytes(listing.bytes));
  for (const DiskNamespace& named : listing.namespaces) {
    std::cout << fmt::format("{}  {} pages, {}, stored {} s to {} s ago  {}\n",
                             namespace_name(named.digest), named.pages, format_bytes(named.bytes),
                             named.oldest_age_s, named.newest_age_s, named.description);
  }
}

}  // namespace

Status print_disk_listing(const std::string& directory, bool json) {
  const MonotonicClock clock;
  STEMMA_ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryFiles> files,
                          DirectoryFiles::open(directory, clock, {.exclusive = false}));
  STEMMA_ASSIGN_OR_RETURN(const DiskListing listing,
                          list_disk(*files, clock.now_us() + kReadingUs));
  if (json) {
    print_json(listing);
  } else {
    print_text(directory, listing);
  }
  return {};
}

}  // namespace stemma
