#include "simd/scalar_begin.h"
#include "layout/layout.tmpl.h"
#include "simd/scalar_end.h"
