/* Opens the amx target region: tiles and their products of bytes besides all of the avx512 tier. */
#include "simd/avx512_begin.h"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-int8"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-int8")
#endif
#undef QK_ISA
#define QK_ISA amx

/* What ldtilecfg reads: the shapes of the eight tile registers. */
typedef struct {
    uint8_t palette, start, zero[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} qk_tile_shapes;
