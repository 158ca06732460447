/* What the machine can do at most: how fast it reads memory, multiplies and adds. For figures like "81 % of the read bandwidth". */
#ifndef QK_MACHINE_H
#define QK_MACHINE_H

#include "simd/tiers.h"

enum qk_machine_op { QK_READ = 0, QK_FMA = 1, QK_DOT = 2, QK_MACHINE_OPS = 3 };
enum { QK_READ_UNIT = 256 }; /* bytes */

typedef struct {
    const uint8_t *x; /* QK_READ: (units, QK_READ_UNIT); else 64 bytes of operands */
    int64_t units;    /* QK_READ: units to read once; else rounds of the loop, for each thread */
    int64_t ahead; /* QK_READ: how many bytes ahead to prefetch, 0 for not, and whether past the outer caches: what is fastest depends on the CPU */
    int past_caches;
    int32_t *sink; /* (threads, 16): what is computed must be stored, every lane, or compilers leave it out */
} qk_machine_args;

/* units first..last-1; macs: multiply-accumulates of one unit, 0 for QK_READ */
typedef void qk_machine_body(const qk_machine_args *args, int64_t first, int64_t last, int32_t *sink);
typedef struct {
    qk_machine_body *body[QK_MACHINE_OPS];
    int macs[QK_MACHINE_OPS];
} qk_machine_table;

QK_DECLARE_TABLES_AMX(qk_machine_table, machine);

int qk_machine_macs(int isa, int op);
void qk_machine(int isa, int threads, int op, const qk_machine_args *args);

#endif
