#include "simd/scalar_begin.h"
#include "reduction/reduction.tmpl.h"
#include "simd/scalar_end.h"
