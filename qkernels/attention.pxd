# The engine of attention and the checks of its inputs, for the modules whose operators run on it.
cimport numpy as cnp
from libc.stdint cimport int64_t, uint8_t

cdef extern from "attention/attention.h" nogil:
    enum:
        QK_MASK_NONE
        QK_MASK_BOOL
        QK_PIECE "QK_ATTENTION_PIECE"
        QK_CACHE_I8
        QK_CACHE_U4
        QK_SCORES_MASKED
        QK_PROBABILITIES
    ctypedef struct qk_attention_args:
        const void *q
        const void *k
        const void *v
        void *y
        const void *mask
        int64_t q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, y_batch, y_head, y_row, mask_batch, mask_head, mask_row
        int q_dtype, k_dtype, v_dtype, y_dtype, mask_dtype
        int64_t batch, heads, kv_heads, rows, keys, d, dv, past
        const int64_t *pasts
        const int64_t *ends
        const int64_t *counts
        int causal
        int64_t left, right
        float scale, softcap
        const float *sink
        const uint8_t *blocks
        int64_t layouts, block_count
        int block_log2
        const float *k_scale
        const float *v_scale
        float *k_rows
        float *v_rows
        int64_t rows_batch, rows_head
        const int64_t *starts
        const int64_t *pages
        const int64_t *slots
        int64_t page, pages_row
        const float *q_bias
        const float *k_bias
        const float *v_bias
        const float *q_norm
        const float *k_norm
        const float *cos
        const float *sin
        const int64_t *positions
        int64_t half, turned
        int interleaved
        float q_epsilon, k_epsilon
        const void *new_k
        const void *new_v
        int64_t new_k_batch, new_k_head, new_k_row, new_v_batch, new_v_head, new_v_row
        float *statistics
        void *scores
        int64_t scores_keys
        int scores_mode
        float scores_hidden
    int64_t qk_attention_scratch(const qk_attention_args *args, int threads)
    void qk_attention(int isa, int threads, const qk_attention_args *args, float *scratch)
    void qk_attention_scores(int isa, int threads, const qk_attention_args *args, float *scratch)
    void qk_attention_copy(int threads, char *to, int64_t to_stride, const char *source, int64_t source_stride, int64_t blocks, int64_t bytes)

cdef void _clear(qk_attention_args *a) noexcept nogil
cdef int _run(qk_attention_args *a, int threads, bint attend) except -1
cdef void _place(qk_attention_args *a, cnp.ndarray q, cnp.ndarray k, cnp.ndarray v) noexcept
cdef void _place_result(qk_attention_args *a, cnp.ndarray y) noexcept
cdef cnp.ndarray _strided(object x, int allowed, str func, str arg)
cdef cnp.ndarray _heads(cnp.ndarray a, int64_t heads, str func, str arg, str attribute)
cdef int64_t _step(cnp.ndarray a, int axis) noexcept
cdef void _copy_past(cnp.ndarray past, cnp.ndarray present, int threads)
cdef float _number(object value, bint positive, str func, str arg) except? -1
cdef int64_t _rotary_half(object cos, int64_t d, str func, str arg) except -1
cdef cnp.ndarray _vector(object x, int64_t n, str func, str arg)
cdef int64_t _count(object value, str func, str arg) except -1
cdef int _flag(object value, str func, str arg) except -1
cdef int64_t _local_window(object value, str func) except? -2
cdef float _epsilon(object value, str func, str arg) except? -1
cdef cnp.ndarray _widened(object x, int64_t n, int code, str func, str arg)
cdef tuple _rows_of(object cos, object sin, int64_t half, int code, cnp.ndarray positions, cnp.ndarray pasts, cnp.ndarray counts, int64_t rows, str func)
cdef tuple _outs(object out, tuple outputs, str func)
cdef bint _is_same(cnp.ndarray a, cnp.ndarray b)
cdef cnp.ndarray _scales(object x, object kind, int64_t heads, int64_t d, str func, str arg)
