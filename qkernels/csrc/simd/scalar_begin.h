/* Opens the scalar tier: baseline instructions of the compiler's default target, vectors are arrays of 16. */
#define QK_ISA scalar
#include "simd/v16_scalar.h"
#include "simd/v16_common.h"
#include "simd/d16_scalar.h"
#include "simd/d16_common.h"
