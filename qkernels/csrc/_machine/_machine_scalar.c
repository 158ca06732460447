#include "simd/scalar_begin.h"
#define QK_SUMS 2
/* the empty assembly hides that a never changes, else the product would leave the loop */
static inline v16i QK_TIER(dot_bytes)(v16i *a, v16i b, v16i sum)
{
    uint8_t u[64];
    int8_t s[64];
    __asm__ volatile("" : : "r"(a) : "memory");
    memcpy(u, a, sizeof u);
    memcpy(s, &b, sizeof s);
    for (int k = 0; k < 64; k++)
        sum.i[k / 4] = (int32_t)((uint32_t)sum.i[k / 4] + (uint32_t)(u[k] * s[k]));
    return sum;
}
#include "_machine/_machine.tmpl.h"
#include "simd/scalar_end.h"
