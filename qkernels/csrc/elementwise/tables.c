/* Results of a function for all codes of a 16-bit type, made at need from its exact form and kept.
 *
 * An entry belongs to a tier as well, though all have the same bits: so each tier answers for its own. It is made without a lock, since a lock may be held while
 * another thread forks: threads that come at once may each make one, the first to publish it wins, and what is published never changes. */
#include <stdlib.h>
#include <string.h>

#include "elementwise/elementwise.h"

enum { CODES = 1 << 16, SLOTS = 512, MOST_TABLES = 192, WORTH_IT = CODES / 2 };

typedef struct {
    int isa, op, dtype;
    float parameters[2];
} key;

typedef struct {
    key key;
    int64_t seen; /* elements that were computed without the table */
    uint16_t *codes;
} entry;

static entry *slots[SLOTS];
static int tables;

static entry *entry_of(const key *k)
{
    uint32_t bits[2];
    memcpy(bits, k->parameters, sizeof bits);
    unsigned first = ((unsigned)(k->isa * 64 + k->op) * 4 + (unsigned)k->dtype + (bits[0] ^ bits[1] * 31) * 2654435761u) >> 5;
    for (unsigned i = 0; i < 16; i++) {
        entry **slot = &slots[(first + i) % SLOTS], *e = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
        if (!e) {
            entry *made = calloc(1, sizeof *made);
            if (!made)
                return NULL;
            made->key = *k;
            if (__atomic_compare_exchange_n(slot, &e, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                return made;
            free(made); /* e is what another thread put there */
        }
        if (!memcmp(&e->key, k, sizeof *k))
            return e;
    }
    return NULL;
}

static uint16_t *make(qk_elementwise_run *run, const qk_elementwise_args *args)
{
    uint16_t *codes = malloc(sizeof(uint16_t) * (CODES + 2)); /* a lane of a gather may read 4 bytes */
    uint16_t *every = malloc(sizeof(uint16_t) * CODES);
    if (codes && every) {
        qk_elementwise_args all = {.a = (char *)every,
                                   .b = (char *)every,
                                   .y = (char *)codes,
                                   .op = args->op,
                                   .dtype = args->dtype,
                                   .axes = 1,
                                   .alpha = args->alpha,
                                   .beta = args->beta,
                                   .shape = {CODES},
                                   .a_step = {2},
                                   .b_step = {2}};
        for (int i = 0; i < CODES; i++)
            every[i] = (uint16_t)i;
        run(&all, 0, CODES);
        codes[CODES] = codes[CODES + 1] = 0;
    } else {
        free(codes);
        codes = NULL;
    }
    free(every);
    return codes;
}

/* The table for a call on n elements, or NULL where the function has none or it does not pay yet: making one costs what 65,536 elements cost. */
const uint16_t *qk_elementwise_codes(int isa, qk_elementwise_run *run, const qk_elementwise_args *args, int64_t n)
{
    if (args->dtype == QK_F32 || args->op < QK_FUNCTIONS)
        return NULL;
    key k;
    memset(&k, 0, sizeof k);
    k = (key){isa, args->op, args->dtype, {args->alpha, args->beta}};
    entry *e = entry_of(&k);
    if (!e)
        return NULL;
    uint16_t *codes = __atomic_load_n(&e->codes, __ATOMIC_ACQUIRE), *none = NULL;
    if (codes || __atomic_add_fetch(&e->seen, n, __ATOMIC_RELAXED) < WORTH_IT)
        return codes;
    if (__atomic_add_fetch(&tables, 1, __ATOMIC_RELAXED) > MOST_TABLES || !(codes = make(run, args))) {
        __atomic_sub_fetch(&tables, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    if (__atomic_compare_exchange_n(&e->codes, &none, codes, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return codes;
    __atomic_sub_fetch(&tables, 1, __ATOMIC_RELAXED);
    free(codes);
    return none;
}
