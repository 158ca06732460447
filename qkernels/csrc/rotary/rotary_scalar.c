#include "simd/scalar_begin.h"
#include "rotary/rotary.tmpl.h"
#include "simd/scalar_end.h"
