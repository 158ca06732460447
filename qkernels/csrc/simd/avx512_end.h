/* Closes the avx512 target region. */
#undef QK_ISA
#undef QK_FOLDED
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
