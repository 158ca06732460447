#include "simd/tiers.h"
#if QK_X86
#include "simd/avx512_begin.h"
#define QK_ROWS 12
#define QK_GROUPS 2
#include "matmul/matmul.tmpl.h"
#include "simd/avx512_end.h"
#endif
