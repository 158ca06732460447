#include "_machine/_machine.h"

static const qk_machine_table *const tables[QK_ISA_COUNT] = QK_TABLES_AMX(machine);

int qk_machine_macs(int isa, int op) { return tables[isa]->macs[op]; }

void qk_machine(int isa, int threads, int op, const qk_machine_args *args)
{
    qk_machine_body *body = tables[isa]->body[op];
    if (threads == 1) {
        body(args, 0, args->units, args->sink);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        if (op == QK_READ)
            body(args, args->units * t / threads, args->units * (t + 1) / threads, args->sink + 16 * t);
        else
            body(args, 0, args->units, args->sink + 16 * t);
}
