cimport numpy as cnp

cdef class PackedInt8Matrix:
    cdef cnp.ndarray _panels, _shaped

cdef cnp.ndarray integer_projection(cnp.ndarray x, object w, object x_zero, object w_zero, object x_scale, object w_scale, cnp.ndarray bias, int threads,
                                    str func)
