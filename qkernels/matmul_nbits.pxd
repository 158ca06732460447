cimport numpy as cnp
from libc.stdint cimport int64_t, uint8_t

cdef extern from "matmul_nbits/matmul_nbits.h" nogil:
    ctypedef struct qk_nbits:
        uint8_t *tiles
        void *scales
        void *zero_points
        int bits, scale_dtype, zp_kind
        int64_t n, k, block_size, groups, k_tiles, blocks

cdef class PackedBlocks:
    cdef qk_nbits w
    cdef object _buffers
    cdef int64_t k         # inputs as the caller counts them; w.k has more where groups were padded
    cdef object _order     # with g_idx: for each of w.k the input that goes there, -1 for none; else None
    cdef object _groups    # with g_idx: the serialized block that each packed one is, or is a part of; and the serialized block size
    cdef bint _once        # packed for one product, not to stay
    cdef cnp.ndarray _empty(self, tuple shape, object dtype)
    cdef int _allocate(self, object n, object k, int bits, int64_t block_size, object scale_dtype, int zp_kind) except -1
    cdef int _set_buffers(self, cnp.ndarray tiles, cnp.ndarray scales, cnp.ndarray zero_points) except -1
    cdef int _quantize(self, object weights, int bits, object block_size, int rounding, int zp_kind, object threads, str func) except -1
    cdef object _reordered(self, object a)
    cdef object _multiply(self, object x, object bias, int activations, object out, object threads, str func, str name, object norm=*,
                          object epsilon=*, object swiglu=*, object residual=*)
