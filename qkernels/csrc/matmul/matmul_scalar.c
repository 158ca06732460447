#include "simd/scalar_begin.h"
#define QK_ROWS 4
#define QK_GROUPS 1
#include "matmul/matmul.tmpl.h"
#include "simd/scalar_end.h"
