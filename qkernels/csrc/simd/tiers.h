/* The ladder of instruction-set tiers, and how a family's tables hang on it.
 *
 * A family has one body, <family>.tmpl.h, compiled once per tier by a stub that opens a target region. Each compilation ends in a
 * constant table of function pointers named <family>_kernels_<tier>; QK_TABLES lists them in the order of enum qk_isa. The tier amx is for families of
 * integer products: QK_TABLES_AMX; the others run avx512's bodies there. */
#ifndef QK_SIMD_TIERS_H
#define QK_SIMD_TIERS_H

#include <stdint.h>

enum qk_isa { QK_SCALAR = 0, QK_AVX2 = 1, QK_AVX512 = 2, QK_AMX = 3, QK_ISA_COUNT = 4 };

/* clang-format off */
#if defined(__x86_64__)
#define QK_X86 1
#define QK_DECLARE_TABLES(type, family) extern const type family##_kernels_scalar, family##_kernels_avx2, family##_kernels_avx512
#define QK_TABLES(family) {&family##_kernels_scalar, &family##_kernels_avx2, &family##_kernels_avx512, &family##_kernels_avx512}
#define QK_TABLES_AMX(family) {&family##_kernels_scalar, &family##_kernels_avx2, &family##_kernels_avx512, &family##_kernels_amx}
#define QK_DECLARE_TABLES_AMX(type, family) QK_DECLARE_TABLES(type, family), family##_kernels_amx
#else
#define QK_X86 0
#define QK_DECLARE_TABLES(type, family) extern const type family##_kernels_scalar
#define QK_TABLES(family) {&family##_kernels_scalar, &family##_kernels_scalar, &family##_kernels_scalar, &family##_kernels_scalar}
#define QK_TABLES_AMX(family) QK_TABLES(family)
#define QK_DECLARE_TABLES_AMX(type, family) QK_DECLARE_TABLES(type, family)
#endif
/* clang-format on */

#define QK_PASTE2(a, b) a##_##b
#define QK_PASTE(a, b) QK_PASTE2(a, b)
#define QK_TIER(name) QK_PASTE(name, QK_ISA)

/* before a loop whose count is a constant: its array elements then live in registers */
#if defined(__clang__)
#define QK_UNROLL _Pragma("clang loop unroll(full)")
#else
#define QK_UNROLL _Pragma("GCC unroll 32")
#endif

/* dtype codes shared with _arrays.pxd */
enum qk_dtype { QK_F32 = 0, QK_F16 = 1, QK_BF16 = 2 };

static inline int64_t qk_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t qk_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t qk_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t qk_itemsize(int dtype) { return dtype == QK_F32 ? 4 : 2; }

/* the position of the first of n indices outside [low, high), -1 if there is none */
static inline int64_t qk_first_outside(const int64_t *index, int64_t n, int64_t low, int64_t high)
{
    for (int64_t i = 0; i < n; i++)
        if (index[i] < low || index[i] >= high)
            return i;
    return -1;
}

#endif
