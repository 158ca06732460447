#include "simd/scalar_begin.h"
#define QK_MAX_ROWS 4
#define QK_FLOAT_ROWS 4
#include "matmul_nbits/matmul_nbits.h"
#include "matmul_nbits/dot_scalar.h"
#include "matmul_nbits/matmul_nbits.tmpl.h"
#include "simd/scalar_end.h"
