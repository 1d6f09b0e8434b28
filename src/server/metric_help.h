// metric_help: what each of the server's metrics says, in a line for people.
//
// Thread:     pure function.
// Memory:     literals.
// Cost:       a walk of the list.
// Not here:   the numbers (visit_metrics of each component).
#pragma once

#include <string_view>

namespace stemma {

// Empty for a name that is not known.
std::string_view metric_help(std::string_view name);

}  // namespace stemma
