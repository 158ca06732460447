#include "simd/scalar_begin.h"
#include "quantization/dot_scalar.h"
#include "quantization/quantization.tmpl.h"
#include "simd/scalar_end.h"
