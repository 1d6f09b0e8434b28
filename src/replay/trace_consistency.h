// TraceConsistency: what must hold from one request of a file to the next. Time does not go back,
// and a hash has one prefix. The latter is checked for as many places as were asked for: hashes
// fall into them, and each place remembers the last hash that fell there.
//
// Thread:     one thread an object.
// Memory:     24 bytes a place, and 32 a page of the longest request.
// Cost:       some nanoseconds a page.
// Not here:   what one line says (trace_parser).
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "replay/trace_request.h"
#include "stemma/result.h"

namespace stemma {

class TraceConsistency {
 public:
  static constexpr std::size_t kPlaces = std::size_t{1} << 20;

  struct Options {
    std::size_t places = kPlaces;  // 0: prefixes are not checked
    bool in_order_of_time = true;
  };
  explicit TraceConsistency(const Options& options)
      : places_(options.places), in_order_of_time_(options.in_order_of_time) {}

  // Whether `request` may follow those before it; an error names the field and the page, and
  // nothing of the request is remembered.
  Status check(const TraceRequest& request, std::string_view where);

 private:
  struct Place {
    std::int64_t hash = 0;
    std::int64_t hash_before = 0;  // in the prefix
    bool taken = false;
    bool begins = false;  // a prefix: there is no hash before it
    bool operator==(const Place&) const = default;
  };

  Status check_prefixes(const std::vector<std::int64_t>& hashes, std::string_view where);
  void take_back();

  std::vector<Place> places_;
  std::vector<std::pair<std::size_t, Place>> replaced_;  // by the present request: places before
  bool in_order_of_time_;
  double latest_ms_ = 0;
};

}  // namespace stemma
