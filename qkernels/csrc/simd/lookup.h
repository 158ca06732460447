/* Results of 16-bit codes from a table, for tiers without an instruction that is faster than this. */
#ifndef QK_SIMD_LOOKUP_H
#define QK_SIMD_LOOKUP_H

#include <stdint.h>
#include <string.h>

/* y[l] = table[x[l]] for l in 0..15, four codes in a load */
static inline void v16_lookup_u16_by_fours(void *y, const void *x, const uint16_t *table)
{
    uint64_t c[4];
    uint16_t r[16];
    memcpy(c, x, sizeof c);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            r[4 * i + j] = table[c[i] >> 16 * j & 0xFFFF]; /* little-endian, as all of these formats */
    memcpy(y, r, sizeof r);
}

#endif
