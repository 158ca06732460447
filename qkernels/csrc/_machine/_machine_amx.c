#include "simd/tiers.h"
#if QK_X86
#include "simd/amx_begin.h"
#include "_machine/_machine.h"
#define QK_SUMS 12
#define QK_DOT_MACS (4 * 16 * 16 * 64)
/* sixteen rows of 64 bytes s8 times sixteen columns u8, four sums one after the other */
static void QK_TIER(dot)(const qk_machine_args *args, int64_t first, int64_t last, int32_t *sink)
{
    const qk_tile_shapes whole = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};
    _Alignas(64) int32_t sums[256];
    _tile_loadconfig(&whole);
    _tile_loadd(0, args->x, 0);
    _tile_loadd(1, args->x, 0);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t u = first; u < last; u++) {
        _tile_dpbsud(2, 0, 1);
        _tile_dpbsud(3, 0, 1);
        _tile_dpbsud(4, 0, 1);
        _tile_dpbsud(5, 0, 1);
    }
    v16i seen = v16i_set1(0);
    _tile_stored(2, sums, 64);
    seen = v16i_or(seen, v16i_load(sums));
    _tile_stored(3, sums, 64);
    seen = v16i_or(seen, v16i_load(sums));
    _tile_stored(4, sums, 64);
    seen = v16i_or(seen, v16i_load(sums));
    _tile_stored(5, sums, 64);
    v16i_store(sink, v16i_or(seen, v16i_load(sums)));
    _tile_release();
}
#include "_machine/_machine.tmpl.h"
#include "simd/amx_end.h"
#endif
