#include "simd/tiers.h"
#if QK_X86
#include "simd/amx_begin.h"
#define QK_MAX_ROWS 16
#define QK_FLOAT_ROWS 8
#define QK_TILES
#include "matmul_nbits/matmul_nbits.h"
#include "matmul_nbits/dot_avx512.h"
#include "matmul_nbits/matmul_nbits.tmpl.h"
#include "simd/amx_end.h"
#endif
