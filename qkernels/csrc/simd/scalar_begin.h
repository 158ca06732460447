/* Opens the scalar tier: baseline instructions of the compiler's default target, vectors are arrays of 16. */
#define QK_ISA scalar
#define QK_FOLDED static inline /* where other tiers insist: 16 lanes written out would make megabytes */
#include "simd/v16_scalar.h"
#include "simd/v16_common.h"
#include "simd/d16_scalar.h"
#include "simd/d16_common.h"
