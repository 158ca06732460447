#include "simd/scalar_begin.h"
#include "attention/attention.tmpl.h"
#include "simd/scalar_end.h"
