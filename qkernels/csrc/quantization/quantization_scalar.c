#include "simd/scalar_begin.h"
#define QK_INTEGER_ROWS 4
#include "quantization/dot_scalar.h"
#include "quantization/quantization.tmpl.h"
#include "simd/scalar_end.h"
