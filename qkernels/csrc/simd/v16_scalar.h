/* v16, scalar tier: the specification of every operation, as plain loops over 16 lanes. Other tiers must give the same bits.
 *
 *   v16    16 floats        v16i   16 int32        m16   16 truth values
 *
 * fma is fused (fmaf) everywhere; min and max return their second operand when an operand is NaN, as the x86 instructions do;
 * reductions add lanes i and i+8, then i and i+4, i+2, i+1. */
/* clang-format off */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "simd/lookup.h"
#include "simd/scalar_float.h"

typedef struct { float f[16]; } v16;
typedef struct { int32_t i[16]; } v16i;
typedef uint16_t m16;

#define V16_ACCUMULATORS 1 /* that fit in the registers beside their operands: chooses a template's tile, never its bits */

#define V16_EACH for (int l = 0; l < 16; l++)

static inline v16 v16_set1(float x) { v16 r; V16_EACH r.f[l] = x; return r; }
static inline v16 v16_load(const float *p) { v16 r; memcpy(&r, p, sizeof r); return r; }
static inline void v16_store(float *p, v16 a) { memcpy(p, &a, sizeof a); }
static inline v16 v16_load_n(const float *p, int n) { v16 r = {{0}}; memcpy(&r, p, 4 * (size_t)n); return r; }
static inline void v16_store_n(float *p, v16 a, int n) { memcpy(p, &a, 4 * (size_t)n); }

static inline v16 v16_add(v16 a, v16 b) { V16_EACH a.f[l] += b.f[l]; return a; }
static inline v16 v16_sub(v16 a, v16 b) { V16_EACH a.f[l] -= b.f[l]; return a; }
static inline v16 v16_mul(v16 a, v16 b) { V16_EACH a.f[l] *= b.f[l]; return a; }
static inline v16 v16_div(v16 a, v16 b) { V16_EACH a.f[l] /= b.f[l]; return a; }
static inline v16 v16_sqrt(v16 a) { V16_EACH a.f[l] = sqrtf(a.f[l]); return a; }
static inline v16 v16_fma(v16 a, v16 b, v16 c) { V16_EACH c.f[l] = fmaf(a.f[l], b.f[l], c.f[l]); return c; }
static inline v16 v16_fnma(v16 a, v16 b, v16 c) { V16_EACH c.f[l] = fmaf(-a.f[l], b.f[l], c.f[l]); return c; }
static inline v16 v16_max(v16 a, v16 b) { V16_EACH a.f[l] = a.f[l] > b.f[l] ? a.f[l] : b.f[l]; return a; }
static inline v16 v16_min(v16 a, v16 b) { V16_EACH a.f[l] = a.f[l] < b.f[l] ? a.f[l] : b.f[l]; return a; }
static inline v16 v16_round(v16 a) { V16_EACH a.f[l] = rintf(a.f[l]); return a; }
static inline v16 v16_floor(v16 a) { V16_EACH a.f[l] = floorf(a.f[l]); return a; }
static inline v16 v16_ceil(v16 a) { V16_EACH a.f[l] = ceilf(a.f[l]); return a; }

static inline v16i v16_as_i(v16 a) { v16i r; memcpy(&r, &a, sizeof r); return r; }
static inline v16 v16i_as_f(v16i a) { v16 r; memcpy(&r, &a, sizeof r); return r; }

/* a * 2^n for integral n in [-252, 254], rounded once */
static inline v16 v16_scale2(v16 a, v16 n)
{
    V16_EACH a.f[l] = a.f[l] != a.f[l] || n.f[l] != n.f[l] ? NAN : ldexpf(a.f[l], (int)n.f[l]);
    return a;
}

/* a * 2^floor(n) */
static inline v16 v16_scale2_floor(v16 a, v16 n)
{
    V16_EACH n.f[l] = floorf(n.f[l]);
    return v16_scale2(a, n);
}
/* lane l = table[i[l] mod 16], or mod 32 */
static inline v16 v16_lookup16(const float *table, v16i i) { v16 r; V16_EACH r.f[l] = table[i.i[l] & 15]; return r; }
static inline v16 v16_lookup32(const float *table, v16i i) { v16 r; V16_EACH r.f[l] = table[i.i[l] & 31]; return r; }

static inline m16 v16_lt(v16 a, v16 b) { m16 m = 0; V16_EACH m |= (m16)((a.f[l] < b.f[l]) << l); return m; }
static inline m16 v16_eq(v16 a, v16 b) { m16 m = 0; V16_EACH m |= (m16)((a.f[l] == b.f[l]) << l); return m; }
static inline m16 v16_isnan(v16 a) { m16 m = 0; V16_EACH m |= (m16)((a.f[l] != a.f[l]) << l); return m; }
static inline m16 v16i_gt(v16i a, v16i b) { m16 m = 0; V16_EACH m |= (m16)((a.i[l] > b.i[l]) << l); return m; }
static inline m16 v16i_eq(v16i a, v16i b) { m16 m = 0; V16_EACH m |= (m16)((a.i[l] == b.i[l]) << l); return m; }
static inline int m16_bits(m16 m) { return m; }
static inline m16 m16_first(int n) { return (m16)((1u << n) - 1); }
static inline v16 v16_select(m16 m, v16 a, v16 b) { V16_EACH b.f[l] = m >> l & 1 ? a.f[l] : b.f[l]; return b; }
static inline v16i v16i_select(m16 m, v16i a, v16i b) { V16_EACH b.i[l] = m >> l & 1 ? a.i[l] : b.i[l]; return b; }

/* the 32 lanes of a and b, as if one row: its even and its odd ones; and back */
static inline void v16_unzip(v16 a, v16 b, v16 *even, v16 *odd)
{
    float row[32];
    memcpy(row, &a, sizeof a);
    memcpy(row + 16, &b, sizeof b);
    V16_EACH even->f[l] = row[2 * l], odd->f[l] = row[2 * l + 1];
}
static inline void v16_zip(v16 even, v16 odd, v16 *a, v16 *b)
{
    float row[32];
    V16_EACH row[2 * l] = even.f[l], row[2 * l + 1] = odd.f[l];
    memcpy(a, row, sizeof *a);
    memcpy(b, row + 16, sizeof *b);
}

static inline v16i v16i_set1(int32_t x) { v16i r; V16_EACH r.i[l] = x; return r; }
static inline v16i v16i_load(const void *p) { v16i r; memcpy(&r, p, sizeof r); return r; }
static inline void v16i_store(void *p, v16i a) { memcpy(p, &a, sizeof a); }
static inline v16i v16i_add(v16i a, v16i b) { V16_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] + (uint32_t)b.i[l]); return a; }
static inline v16i v16i_sub(v16i a, v16i b) { V16_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] - (uint32_t)b.i[l]); return a; }
static inline v16i v16i_mul(v16i a, v16i b) { V16_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] * (uint32_t)b.i[l]); return a; }
static inline v16i v16i_and(v16i a, v16i b) { V16_EACH a.i[l] &= b.i[l]; return a; }
static inline v16i v16i_or(v16i a, v16i b) { V16_EACH a.i[l] |= b.i[l]; return a; }
static inline v16i v16i_xor(v16i a, v16i b) { V16_EACH a.i[l] ^= b.i[l]; return a; }
static inline v16i v16i_min(v16i a, v16i b) { V16_EACH a.i[l] = a.i[l] < b.i[l] ? a.i[l] : b.i[l]; return a; }
static inline v16i v16i_max(v16i a, v16i b) { V16_EACH a.i[l] = a.i[l] > b.i[l] ? a.i[l] : b.i[l]; return a; }
#define v16i_shl(a, n) v16i_shl_((a), (n))
#define v16i_shr(a, n) v16i_shr_((a), (n)) /* zeros come in */
#define v16i_sra(a, n) v16i_sra_((a), (n)) /* the sign comes in */
static inline v16i v16i_shl_(v16i a, int n) { V16_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] << n); return a; }
static inline v16i v16i_shr_(v16i a, int n) { V16_EACH a.i[l] = (int32_t)((uint32_t)a.i[l] >> n); return a; }
static inline v16i v16i_sra_(v16i a, int n) { V16_EACH a.i[l] >>= n; return a; }

static inline v16 v16i_to_f(v16i a) { v16 r; V16_EACH r.f[l] = (float)a.i[l]; return r; }
/* nearest even; what does not fit, and NaN, becomes INT32_MIN */
static inline v16i v16_to_i(v16 a)
{
    v16i r;
    V16_EACH r.i[l] = a.f[l] >= -2147483648.0f && a.f[l] < 2147483648.0f ? (int32_t)rintf(a.f[l]) : INT32_MIN;
    return r;
}

static inline v16i v16i_load_u8(const void *p) { v16i r; V16_EACH r.i[l] = ((const uint8_t *)p)[l]; return r; }
static inline v16i v16i_load_i8(const void *p) { v16i r; V16_EACH r.i[l] = ((const int8_t *)p)[l]; return r; }
static inline v16i v16i_load_u16(const void *p) { uint16_t h[16]; v16i r; memcpy(h, p, sizeof h); V16_EACH r.i[l] = h[l]; return r; }
static inline void v16i_store_u16(void *p, v16i a) { uint16_t h[16]; V16_EACH h[l] = (uint16_t)a.i[l]; memcpy(p, h, sizeof h); }
/* 64 aligned bytes that nobody will read soon, past the caches; and the end of such */
static inline void v16i_stream(void *p, v16i a) { memcpy(p, &a, sizeof a); }
static inline void v16i_stream_end(void) {}
/* y[l] = table[x[l]] for 16 codes; the table has 65,536 entries and may be read a few bytes beyond */
static inline void v16_lookup_u16(void *y, const void *x, const uint16_t *table) { v16_lookup_u16_by_fours(y, x, table); }
static inline void v16i_store_u8(void *p, v16i a) { V16_EACH ((uint8_t *)p)[l] = (uint8_t)a.i[l]; }

static inline uint16_t v16_f32_to_f16_(float f)
{
    uint32_t u, sign;
    memcpy(&u, &f, 4);
    sign = u >> 16 & 0x8000;
    u &= 0x7FFFFFFF;
    if (u > 0x7F800000)
        return (uint16_t)(sign | 0x7E00 | (u >> 13 & 0x3FF));
    if (u >= 0x47800000) /* 65536 and more */
        return (uint16_t)(sign | 0x7C00);
    if (u < 0x38800000) { /* below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits */
        float a;
        memcpy(&a, &u, 4);
        a += 0.5f;
        memcpy(&u, &a, 4);
        return (uint16_t)(sign | (u - 0x3F000000));
    }
    u += 0xFFF + (u >> 13 & 1);
    return (uint16_t)(sign | ((u - 0x38000000) >> 13));
}

static inline v16 v16_load_f16(const uint16_t *p) { v16 r; V16_EACH r.f[l] = qk_f16_to_f32(p[l]); return r; }
static inline void v16_store_f16(uint16_t *p, v16 a) { V16_EACH p[l] = v16_f32_to_f16_(a.f[l]); }

/* 1 if a lane of a and of b differ as float16 */
static inline int v16_f16_differ(v16 a, v16 b)
{
    int differ = 0;
    V16_EACH differ |= v16_f32_to_f16_(a.f[l]) != v16_f32_to_f16_(b.f[l]);
    return differ;
}

static inline float v16_reduce_add(v16 a)
{
    for (int h = 8; h; h >>= 1)
        for (int l = 0; l < h; l++) a.f[l] += a.f[l + h];
    return a.f[0];
}
static inline float v16_reduce_max(v16 a)
{
    for (int h = 8; h; h >>= 1)
        for (int l = 0; l < h; l++) a.f[l] = a.f[l] > a.f[l + h] ? a.f[l] : a.f[l + h];
    return a.f[0];
}

static inline int32_t v16i_reduce_max(v16i a)
{
    for (int l = 1; l < 16; l++) a.i[0] = a.i[l] > a.i[0] ? a.i[l] : a.i[0];
    return a.i[0];
}

static inline int32_t v16i_reduce_add(v16i a)
{
    for (int l = 1; l < 16; l++) a.i[0] += a.i[l];
    return a.i[0];
}
/* lane i = v16_reduce_add(a[i]) */
static inline v16 v16_reduce_add_16(const v16 *a) { v16 r; V16_EACH r.f[l] = v16_reduce_add(a[l]); return r; }

/* (16, 16), rows of x `stride` apart and of y contiguous */
static inline void v16_transpose(const float *x, int64_t stride, float *y)
{
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) y[16 * j + i] = x[i * stride + j];
}

/* v16i as 32 int16, two in a lane, the first one low */
static inline v16i v16i_load_i8_i16(const void *p) { int16_t h[32]; v16i r; for (int i = 0; i < 32; i++) h[i] = ((const int8_t *)p)[i]; memcpy(&r, h, sizeof r); return r; }
/* sum + the two products of each lane; only -32768 squared twice is more than a lane holds */
static inline v16i v16i_dot_i16(v16i sum, v16i a, v16i b)
{
    int16_t x[32], y[32];
    memcpy(x, &a, sizeof x);
    memcpy(y, &b, sizeof y);
    V16_EACH sum.i[l] += x[2 * l] * y[2 * l] + x[2 * l + 1] * y[2 * l + 1];
    return sum;
}
/* 32 lanes of pairs (p[i], q[i]) in the tier's order, and lanes of that order as i = 0 ... 15 and 16 ... 31 */
static inline void v16i_zip_i8(const void *p, const void *q, v16i *a, v16i *b)
{
    int16_t h[64];
    for (int i = 0; i < 32; i++)
        h[2 * i] = ((const int8_t *)p)[i], h[2 * i + 1] = ((const int8_t *)q)[i];
    memcpy(a, h, sizeof *a);
    memcpy(b, h + 32, sizeof *b);
}
static inline void v16i_unzip(v16i a, v16i b, v16i *first, v16i *second) { *first = a; *second = b; }
/* lane i = the sum of the lanes of a[i] */
static inline v16i v16i_reduce_add_16(const v16i *a)
{
    v16i r = {{0}};
    for (int i = 0; i < 16; i++)
        V16_EACH r.i[i] += a[i].i[l];
    return r;
}
#undef V16_EACH
