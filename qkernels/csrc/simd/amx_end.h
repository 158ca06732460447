/* Closes the amx target region. */
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#include "simd/avx512_end.h"
