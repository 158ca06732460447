#include "simd/tiers.h"
#if QK_X86
#include "simd/avx2_begin.h"
#include "quantization/dot_avx2.h"
#include "quantization/quantization.tmpl.h"
#include "simd/avx2_end.h"
#endif
