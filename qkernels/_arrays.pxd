# Argument checks shared by all families, and the float dtype codes of enum qk_dtype.
cimport numpy as cnp

cdef extern from "rows/prologue.h" nogil:
    ctypedef struct qk_prologue:
        int kind, scale_dtype
        const void *scale
        float epsilon
    int QK_AS_IS, QK_RMS_NORM, QK_SWIGLU

cdef enum:
    F32 = 0
    F16 = 1
    BF16 = 2
    F32_ONLY = 1  # sets of dtypes, as bits 1 << code
    FLOATS = 7

cdef str type_name(object x)
cdef int dtype_code(cnp.ndarray x) noexcept
cdef object numpy_dtype(int code)
cdef str names_of(int allowed)
cdef cnp.ndarray as_array(object x, str func, str arg)
cdef cnp.ndarray contiguous(cnp.ndarray a)
cdef cnp.ndarray float_input(object x, int allowed, str func, str arg)
cdef cnp.ndarray same_float_input(object x, int code, str func, str arg)
cdef cnp.ndarray int_input(object x, str func, str arg)
cdef object shape_of(cnp.ndarray a)
cdef bint has_shape(cnp.ndarray a, tuple expected) noexcept
cdef int check_shape(cnp.ndarray a, tuple expected, str func, str arg) except -1
cdef cnp.ndarray output(object out, tuple shape, int code, str func, str arg=*)
cdef cnp.ndarray output_of(object out, tuple shape, object dtype, str func, str arg=*)
cdef cnp.ndarray aligned_empty(tuple shape, object dtype)
cdef cnp.ndarray weights_empty(tuple shape, object dtype)
cdef cnp.ndarray cache_empty(tuple shape, object dtype)
cdef int check_overlap(cnp.ndarray out, cnp.ndarray a, bint in_place, str func, str arg, str name=*) except -1
cdef int check_apart(cnp.ndarray out, object a, str func, str arg) except -1
cdef int normalize_axis(object axis, int rank, str func, str arg=*) except -1
cdef double number(object value, str func, str arg) except? -1
cdef tuple check_outputs(object outputs, tuple offered, str func)
cdef object pick(dict results, tuple outputs)
cdef int num_threads(object threads, str func) except -1
cdef int worth(int threads, cnp.npy_intp work, cnp.npy_intp grain) noexcept nogil
cdef cnp.ndarray prologue(qk_prologue *p, object norm, object epsilon, object swiglu, cnp.npy_intp k, str func)
cdef cnp.ndarray residual_of(object residual, cnp.ndarray y, int code, str func)
