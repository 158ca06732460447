#include "simd/scalar_begin.h"
#include "sampling/sampling.tmpl.h"
#include "simd/scalar_end.h"
