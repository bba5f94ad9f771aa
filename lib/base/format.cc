// SPDX-License-Identifier: Apache-2.0
//
// The compiled half of fmt. Other files include only <fmt/core.h>, which costs a tenth of a second where
// the header-only mode costs five; distributions ship fmt as a shared library alone, which a library that
// goes into other people's processes may not need.
#include <fmt/format-inl.h>

// The header declares these as instantiated elsewhere: here.
FMT_BEGIN_NAMESPACE
namespace detail {
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl<char>(locale_ref) -> char;
#if FMT_VERSION >= 100000
template FMT_API void vformat_to(buffer<char>&, string_view, typename vformat_args<>::type, locale_ref);
#endif
}  // namespace detail
FMT_END_NAMESPACE
