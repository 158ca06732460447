#include "simd/scalar_begin.h"
#include "recurrent/recurrent.tmpl.h"
#include "simd/scalar_end.h"
