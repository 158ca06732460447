/* What this process may run: CPU features and the operating system's consent, threads and forks. */
#ifndef QK_CPU_H
#define QK_CPU_H

enum qk_feature {
    QK_HAS_SSE42 = 1,
    QK_HAS_AVX2 = 2 /* with BMI2 and POPCNT */,
    QK_HAS_FMA = 4,
    QK_HAS_F16C = 8,
    QK_HAS_AVX512 = 16, /* F, BW, DQ and VL */
    QK_HAS_AVX512_VNNI = 32,
    QK_HAS_AVX512_BF16 = 64,
    QK_HAS_AVX_VNNI = 128,
    QK_HAS_OS_YMM = 256,
    QK_HAS_OS_ZMM = 512,
    QK_HAS_AMX_INT8 = 1024 /* and the operating system lets this process use it */
};

unsigned qk_cpu_features(void);     /* a set of qk_feature */
int qk_best_isa(unsigned features); /* the highest enum qk_isa that they allow */
int qk_openmp_max_threads(void);    /* OpenMP's own limit: OMP_NUM_THREADS, OMP_THREAD_LIMIT, threadpoolctl */
int qk_openmp_version(void);        /* the value of _OPENMP */
void qk_watch_forks(void);          /* once, at import */
int qk_is_forked(void);             /* 1 in a child made by fork: OpenMP's threads did not come along */
const char *qk_compiler(void);

#endif
