#include "simd/tiers.h"
#if QK_X86
#include "simd/avx2_begin.h"
#define QK_ROWS 4
#define QK_GROUPS 1
#include "matmul/matmul.tmpl.h"
#include "simd/avx2_end.h"
#endif
