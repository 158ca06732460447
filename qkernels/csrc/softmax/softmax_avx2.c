#include "simd/tiers.h"
#if QK_X86
#include "simd/avx2_begin.h"
#include "softmax/softmax.tmpl.h"
#include "simd/avx2_end.h"
#endif
