#include "simd/tiers.h"
#if QK_X86
#include "simd/avx2_begin.h"
#define QK_SUMS 4
/* Two products u8 * s8 to each 16-bit lane, as the kernels add them up within a tile. The empty assembly hides that a never changes, else the product
 * would leave the loop. */
static inline v16i QK_TIER(dot_bytes)(v16i *a, v16i b, v16i sum)
{
    __asm__ volatile("" : "+x"(a->lo), "+x"(a->hi));
    sum.lo = _mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(a->lo, b.lo));
    sum.hi = _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(a->hi, b.hi));
    return sum;
}
#include "_machine/_machine.tmpl.h"
#include "simd/avx2_end.h"
#endif
