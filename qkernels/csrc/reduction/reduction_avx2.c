#include "simd/tiers.h"
#if QK_X86
#include "simd/avx2_begin.h"
#include "reduction/reduction.tmpl.h"
#include "simd/avx2_end.h"
#endif
