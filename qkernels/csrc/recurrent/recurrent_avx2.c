#include "simd/tiers.h"
#if QK_X86
#include "simd/avx2_begin.h"
#include "recurrent/recurrent.tmpl.h"
#include "simd/avx2_end.h"
#endif
