#include "simd/scalar_begin.h"
#include "softmax/softmax.tmpl.h"
#include "simd/scalar_end.h"
