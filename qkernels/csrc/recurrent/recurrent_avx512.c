#include "simd/tiers.h"
#if QK_X86
#include "simd/avx512_begin.h"
#include "recurrent/recurrent.tmpl.h"
#include "simd/avx512_end.h"
#endif
