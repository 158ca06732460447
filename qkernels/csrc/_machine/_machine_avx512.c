#include "simd/tiers.h"
#if QK_X86
#include "simd/avx512_begin.h"
#define QK_SUMS 12
/* four products u8 * s8 to each lane */
static inline v16i QK_TIER(dot_bytes)(v16i *a, v16i b, v16i sum) { return _mm512_dpbusd_epi32(sum, *a, b); }
#include "_machine/_machine.tmpl.h"
#include "simd/avx512_end.h"
#endif
