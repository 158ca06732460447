/* d16, scalar tier: 16 doubles, for functions whose float32 arithmetic would not be exact enough. The specification of every operation;
 * other tiers must give the same bits. min and max return their second operand when an operand is NaN. */
/* clang-format off */
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct { double f[16]; } d16;

#define D16_EACH for (int l = 0; l < 16; l++)
#define D16_BITWISE(name, expression) \
    static inline d16 name(d16 a, d16 b) \
    { \
        D16_EACH { \
            uint64_t u, v; \
            memcpy(&u, &a.f[l], 8); \
            memcpy(&v, &b.f[l], 8); \
            u = expression; \
            memcpy(&a.f[l], &u, 8); \
        } \
        return a; \
    }

static inline d16 d16_set1(double x) { d16 r; D16_EACH r.f[l] = x; return r; }
static inline d16 d16_of(v16 a) { d16 r; D16_EACH r.f[l] = (double)a.f[l]; return r; }
static inline d16 d16_load_f(const float *p) { d16 r; D16_EACH r.f[l] = (double)p[l]; return r; }
static inline v16 d16_to_f(d16 a) { v16 r; D16_EACH r.f[l] = (float)a.f[l]; return r; } /* nearest even */
static inline d16 d16_add(d16 a, d16 b) { D16_EACH a.f[l] += b.f[l]; return a; }
static inline d16 d16_sub(d16 a, d16 b) { D16_EACH a.f[l] -= b.f[l]; return a; }
static inline d16 d16_mul(d16 a, d16 b) { D16_EACH a.f[l] *= b.f[l]; return a; }
static inline d16 d16_div(d16 a, d16 b) { D16_EACH a.f[l] /= b.f[l]; return a; }
static inline d16 d16_fma(d16 a, d16 b, d16 c) { D16_EACH c.f[l] = fma(a.f[l], b.f[l], c.f[l]); return c; }
static inline d16 d16_fnma(d16 a, d16 b, d16 c) { D16_EACH c.f[l] = fma(-a.f[l], b.f[l], c.f[l]); return c; }
static inline d16 d16_max(d16 a, d16 b) { D16_EACH a.f[l] = a.f[l] > b.f[l] ? a.f[l] : b.f[l]; return a; }
static inline d16 d16_min(d16 a, d16 b) { D16_EACH a.f[l] = a.f[l] < b.f[l] ? a.f[l] : b.f[l]; return a; }
static inline d16 d16_round(d16 a) { D16_EACH a.f[l] = rint(a.f[l]); return a; }
D16_BITWISE(d16_and, u & v)
D16_BITWISE(d16_or, u | v)
D16_BITWISE(d16_xor, u ^ v)
/* a < b ? x : y */
static inline d16 d16_select_lt(d16 a, d16 b, d16 x, d16 y) { D16_EACH y.f[l] = a.f[l] < b.f[l] ? x.f[l] : y.f[l]; return y; }
static inline d16 d16_shl52(d16 a)
{
    uint64_t u[16];
    memcpy(u, &a, sizeof a);
    D16_EACH u[l] <<= 52;
    memcpy(&a, u, sizeof a);
    return a;
}
static inline d16 d16_shr52(d16 a)
{
    uint64_t u[16];
    memcpy(u, &a, sizeof a);
    D16_EACH u[l] >>= 52;
    memcpy(&a, u, sizeof a);
    return a;
}
/* of x = 0x1.8p48 + 1023 + n + j/16, n whole and j in 0..15: 2^n, and table[j] */
static inline d16 d16_sixteenths_power(d16 x)
{
    uint64_t u[16];
    memcpy(u, &x, sizeof x);
    D16_EACH u[l] = u[l] >> 4 << 52;
    memcpy(&x, u, sizeof x);
    return x;
}
static inline d16 d16_sixteenths_lookup(const double *table, d16 x)
{
    uint64_t u[16];
    memcpy(u, &x, sizeof x);
    D16_EACH x.f[l] = table[u[l] & 15];
    return x;
}
/* the sum of all lanes: i and i+8, then i and i+4, i+2, i+1 */
static inline double d16_reduce_add(d16 a)
{
    for (int h = 8; h; h >>= 1)
        for (int l = 0; l < h; l++) a.f[l] += a.f[l + h];
    return a.f[0];
}
static inline void d16_store(double *p, d16 a) { memcpy(p, &a, sizeof a); }
static inline d16 d16_load(const double *p) { d16 r; memcpy(&r, p, sizeof r); return r; }
#undef D16_EACH
#undef D16_BITWISE
