#include "simd/scalar_begin.h"
#include "elementwise/elementwise.tmpl.h"
#include "simd/scalar_end.h"
