#include "_runtime/cpu.h"

#include <omp.h>
#include <pthread.h>
#include <stdint.h>

#include "simd/tiers.h"

#if QK_X86
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Tiles are state that Linux gives to those who ask for it (since 5.16): ARCH_REQ_XCOMP_PERM for XFEATURE_XTILEDATA. */
static int may_use_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return 0;
#endif
}

static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

unsigned qk_cpu_features(void)
{
    unsigned a, b, c, d, found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    if (c & bit_SSE4_2)
        found |= QK_HAS_SSE42;
    if (!(c & bit_OSXSAVE))
        return found;
    /* XCR0: bits 1 and 2 are the xmm and ymm state, 5 to 7 the masks and the zmm halves */
    uint64_t xcr0 = read_xcr0();
    if ((xcr0 & 0x06) == 0x06)
        found |= QK_HAS_OS_YMM;
    if ((xcr0 & 0xE6) == 0xE6)
        found |= QK_HAS_OS_ZMM;
    if (c & bit_FMA)
        found |= QK_HAS_FMA;
    if (c & bit_F16C)
        found |= QK_HAS_F16C;
    const unsigned popcnt = c & bit_POPCNT;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return found;
    const unsigned subleaves = a;
    const unsigned avx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    if (popcnt && (b & 1u << 5) && (b & 1u << 8))                      /* AVX2, BMI2 */
        found |= QK_HAS_AVX2;
    if ((b & avx512) == avx512)
        found |= QK_HAS_AVX512;
    if (c & 1u << 11)
        found |= QK_HAS_AVX512_VNNI;
    if ((d & 3u << 24) == 3u << 24 && (xcr0 & 0x60000) == 0x60000 && may_use_tiles()) /* AMX-TILE and AMX-INT8 */
        found |= QK_HAS_AMX_INT8;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        if (a & 1u << 5)
            found |= QK_HAS_AVX512_BF16;
        if (a & 1u << 4)
            found |= QK_HAS_AVX_VNNI;
    }
    return found;
}
#else
unsigned qk_cpu_features(void) { return 0; }
#endif

int qk_best_isa(unsigned features)
{
    const unsigned avx2 = QK_HAS_OS_YMM | QK_HAS_AVX2 | QK_HAS_FMA | QK_HAS_F16C;
    const unsigned avx512 = avx2 | QK_HAS_OS_ZMM | QK_HAS_AVX512 | QK_HAS_AVX512_VNNI;
    if ((features & avx512) == avx512)
        return features & QK_HAS_AMX_INT8 ? QK_AMX : QK_AVX512;
    return (features & avx2) == avx2 ? QK_AVX2 : QK_SCALAR;
}

int qk_openmp_max_threads(void)
{
    int most = omp_get_max_threads(), limit = omp_get_thread_limit();
    /* LLVM's runtime reads any number out of an OMP_NUM_THREADS that is none */
    return most < limit && most > 0 ? most : limit;
}
int qk_openmp_version(void) { return _OPENMP; }

static int forked;
static void in_child(void) { forked = 1; }
void qk_watch_forks(void) { pthread_atfork(0, 0, in_child); }
int qk_is_forked(void) { return forked; }

const char *qk_compiler(void)
{
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}
