// The parts of fmt that are no templates, compiled once: with FMT_HEADER_ONLY every source that
// formats a line would compile them again, two seconds each. Debian's libfmt is not linked, so that
// programs that link Stemma need no library more (docs/decisions/0011-libraries-for-engines.md).
#include <fmt/format-inl.h>

// What fmt/format.h says is instantiated elsewhere.
template auto fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref)
    -> fmt::detail::thousands_sep_result<char>;
template auto fmt::detail::thousands_sep_impl<wchar_t>(fmt::detail::locale_ref)
    -> fmt::detail::thousands_sep_result<wchar_t>;
template auto fmt::detail::decimal_point_impl(fmt::detail::locale_ref) -> char;
template auto fmt::detail::decimal_point_impl(fmt::detail::locale_ref) -> wchar_t;
