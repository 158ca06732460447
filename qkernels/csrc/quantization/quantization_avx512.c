#include "simd/tiers.h"
#if QK_X86
#include "simd/avx512_begin.h"
#include "quantization/dot_avx512.h"
#include "quantization/quantization.tmpl.h"
#include "simd/avx512_end.h"
#endif
