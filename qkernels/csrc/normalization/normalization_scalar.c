#include "simd/scalar_begin.h"
#include "normalization/normalization.tmpl.h"
#include "simd/scalar_end.h"
