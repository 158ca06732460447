#include "simd/tiers.h"
#if QK_X86
#include "simd/avx512_begin.h"
#define QK_MAX_ROWS 8
#define QK_FLOAT_ROWS 8
#include "matmul_nbits/matmul_nbits.h"
#include "matmul_nbits/dot_avx512.h"
#include "matmul_nbits/matmul_nbits.tmpl.h"
#include "simd/avx512_end.h"
#endif
