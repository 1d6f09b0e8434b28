// Url: percent-decoding, and the parameters of a query.
//
// Thread:     pure functions.
// Memory:     the decoded text.
// Cost:       linear in the text.
// Not here:   whole URLs with schemes and hosts; which characters a request target may hold
//             (request_reader).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stemma/result.h"

namespace stemma {

// The value of a hexadecimal digit, or −1 if `c` is none.
int hex_digit_value(char c);

// `text` with each %XX replaced by its byte; '+' stays. nullopt if a '%' is not followed by two
// hexadecimal digits.
std::optional<std::string> try_percent_decode(std::string_view text);

// The decoded value of the first parameter `name` of `query` ("a=1&b=2"); '+' is a space. Empty for
// a parameter without '='. nullopt if there is none; kInvalidArgument if its encoding is bad: what
// was meant is not known, and to go on as if nothing had been said may be the opposite of it.
Result<std::optional<std::string>> query_value_or_null(std::string_view query,
                                                       std::string_view name);

// Whether `query` says nothing but `name`, once at most: a parameter that nobody reads may have
// been meant to say how little is to be done.
bool says_only(std::string_view query, std::string_view name);

}  // namespace stemma
