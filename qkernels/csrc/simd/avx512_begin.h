/* Opens the avx512 target region: AVX-512 F, BW, DQ, VL and VNNI for the functions that follow, whatever the command line says. */
#include <immintrin.h>
#include <math.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,bmi2,popcnt")
#endif
#define QK_ISA avx512
/* for a function of constants (an op, a dtype) that must vanish into its caller's loop */
#define QK_FOLDED static inline __attribute__((always_inline))
#include "simd/v16_avx512.h"
#include "simd/v16_common.h"
#include "simd/d16_avx512.h"
#include "simd/d16_common.h"
