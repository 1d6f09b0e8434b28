// Parser: a template's source as a Program, or the first construct in it that Stemma does not
// render.
//
// Thread:     pure function.
// Memory:     the Program owns everything.
// Cost:       O(source).
// Not here:   expressions (expression_parser.h), rendering (renderer.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stemma/result.h"
#include "template/program.h"

namespace stemma::jinja {

// Errors: kUnsupported names a construct of Jinja that is not rendered, kCorrupt a mistake in the
// source, kTooLarge a source beyond 1 MiB. All name file and line.
Result<std::unique_ptr<const Program>> parse_program(std::string_view source,
                                                     std::string_view file_name);

}  // namespace stemma::jinja
