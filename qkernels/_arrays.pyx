"""Argument checks shared by all families. Everything here runs before the one nogil block of a call.

A call with good arguments stays in C here: no attribute is looked up and no object made but shapes. What is not plain goes the general way below."""
cimport numpy as cnp
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_CheckExact
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
from cpython.ref cimport Py_INCREF

from qkernels cimport _runtime

from _thread import allocate_lock  # threading itself takes a tenth of our share of an import
import weakref

import ml_dtypes
import numpy as np

cnp.import_array()

cdef int _BF16_NUM = np.dtype(ml_dtypes.bfloat16).num
cdef tuple _DTYPES = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
cdef object _empty = np.empty


cdef str type_name(object x):
    return str(x.dtype) if isinstance(x, np.ndarray) else type(x).__name__


cdef int dtype_code(cnp.ndarray x) noexcept:
    """The qk_dtype of an array, -1 for another dtype."""
    cdef int num = cnp.PyArray_TYPE(x)
    if num == cnp.NPY_FLOAT32:
        return F32
    if num == cnp.NPY_FLOAT16:
        return F16
    if num == _BF16_NUM:
        return BF16
    return -1


cdef object numpy_dtype(int code):
    """The np.dtype of a code."""
    return _DTYPES[code]


cdef str names_of(int allowed):
    return " or ".join([name for bit, name in ((1, "float32"), (2, "float16"), (4, "bfloat16")) if allowed & bit])


cdef cnp.ndarray as_array(object x, str func, str arg):
    """Any array-like as an ndarray of native byte order, without a copy where it is one already."""
    cdef cnp.ndarray a
    if cnp.PyArray_Check(x):
        a = <cnp.ndarray>x
        if cnp.PyArray_ISNOTSWAPPED(a):
            return a
    if x is None:
        raise TypeError(f"{func}: {arg}: expected an array, got None")
    a = x if isinstance(x, np.ndarray) else np.asarray(x)
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return a


cdef cnp.ndarray contiguous(cnp.ndarray a):
    """The array itself where it is aligned and C-contiguous, else a copy."""
    return a if cnp.PyArray_ISCARRAY_RO(a) else np.require(a, requirements=("C", "A"))


cdef cnp.ndarray float_input(object x, int allowed, str func, str arg):
    """A contiguous array of one of the allowed float types (bits of FLOATS)."""
    cdef cnp.ndarray a = as_array(x, func, arg)
    cdef int code = dtype_code(a)
    if code < 0 or not (allowed >> code) & 1:
        raise TypeError(f"{func}: {arg}: expected dtype {names_of(allowed)}, got {a.dtype}")
    return contiguous(a)


cdef cnp.ndarray same_float_input(object x, int code, str func, str arg):
    """A contiguous array of exactly the float type `code`."""
    return float_input(x, 1 << code, func, arg)


cdef cnp.ndarray int_input(object x, str func, str arg):
    """A contiguous int64 array from an integer array."""
    cdef cnp.ndarray a = as_array(x, func, arg)
    if cnp.PyArray_TYPE(a) == cnp.NPY_INT64:
        return contiguous(a)
    if a.dtype.kind not in "iu":
        raise TypeError(f"{func}: {arg}: expected an integer dtype, got {a.dtype}")
    if a.dtype == np.uint64:
        raise TypeError(f"{func}: {arg}: expected an integer dtype that fits int64, got {a.dtype}")
    return contiguous(a.astype(np.int64, copy=False))


cdef object shape_of(cnp.ndarray a):
    cdef int i, rank = cnp.PyArray_NDIM(a)
    cdef tuple shape = PyTuple_New(rank)
    for i in range(rank):
        size = <object>cnp.PyArray_DIM(a, i)
        Py_INCREF(size)
        PyTuple_SET_ITEM(shape, i, size)
    return shape


cdef bint has_shape(cnp.ndarray a, tuple expected) noexcept:
    """Whether that is the shape; sizes are ints."""
    cdef int i, rank = cnp.PyArray_NDIM(a)
    if PyTuple_GET_SIZE(expected) != rank:
        return False
    for i in range(rank):
        if <object>PyTuple_GET_ITEM(expected, i) != cnp.PyArray_DIM(a, i):
            return False
    return True


cdef int check_shape(cnp.ndarray a, tuple expected, str func, str arg) except -1:
    if not has_shape(a, expected):
        raise ValueError(f"{func}: {arg}: expected shape {expected}, got {shape_of(a)}")
    return 0


cdef cnp.ndarray output(object out, tuple shape, int code, str func, str arg="out"):
    """A new array, or the caller's `out` if it is exactly what is needed."""
    if out is None:
        return _empty(shape, _DTYPES[code])
    return output_of(out, shape, _DTYPES[code], func, arg)


cdef cnp.ndarray output_of(object out, tuple shape, object dtype, str func, str arg="out"):
    """The same for any np.dtype."""
    cdef cnp.ndarray a
    if out is None:
        return _empty(shape, dtype)
    if not cnp.PyArray_Check(out):
        raise TypeError(f"{func}: {arg}: expected an ndarray, got {type(out).__name__}")
    a = <cnp.ndarray>out
    if <object>cnp.PyArray_DESCR(a) is not dtype and a.dtype != dtype:
        raise TypeError(f"{func}: {arg}: expected dtype {dtype}, got {a.dtype}")
    if not has_shape(a, shape):
        raise ValueError(f"{func}: {arg}: expected shape {shape}, got {shape_of(a)}")
    if not cnp.PyArray_ISCARRAY_RO(a):
        raise ValueError(f"{func}: {arg}: expected an aligned C-contiguous array, got strides {out.strides}")
    if not cnp.PyArray_ISWRITEABLE(a):
        raise ValueError(f"{func}: {arg}: expected a writeable array, got a read-only one")
    return a


cdef cnp.ndarray aligned_empty(tuple shape, object dtype):
    """An uninitialized array whose data begins at a multiple of 64 bytes, as vector loads like it; untouched pages are not committed."""
    cdef cnp.npy_intp nbytes = np.dtype(dtype).itemsize, start
    for size in shape:
        nbytes *= size
    raw = np.empty(nbytes + 64, np.uint8)
    start = (64 - <size_t>cnp.PyArray_DATA(raw) % 64) % 64
    return raw[start:start + nbytes].view(dtype).reshape(shape)


cdef enum:
    REGION = 32 << 20
    LARGE = 4 << 20

cdef class _Regions:
    """Uninitialized arrays that stay. Small ones share large regions, which NumPy asks the system to map in huge pages: a decoder reads its matrices
    of few megabytes from memory a tenth faster so, since fetching ahead stops at the ends of pages, and so does what little of a cache is in use."""
    cdef object lock
    cdef object region  # weak: it lives as long as one of its arrays
    cdef cnp.npy_intp used

    def __cinit__(self):
        self.lock = allocate_lock()

    cdef cnp.ndarray empty(self, tuple shape, object dtype):
        cdef cnp.npy_intp nbytes = np.dtype(dtype).itemsize, start = 0
        for size in shape:
            nbytes *= size
        if nbytes >= LARGE:
            return aligned_empty(shape, dtype)
        with self.lock:
            region = None if self.region is None else self.region()
            if region is None or self.used + nbytes > REGION:
                region, self.used = aligned_empty((REGION,), np.uint8), 0
                self.region = weakref.ref(region.base)
            else:
                region = region[(64 - <size_t>cnp.PyArray_DATA(region) % 64) % 64:]
            start = self.used
            self.used += (nbytes + 63) // 64 * 64
        return region[start:start + nbytes].view(dtype).reshape(shape)


# not one for both: what a cache leaves behind would stay as long as the weights
cdef _Regions _weights = _Regions(), _caches = _Regions()


cdef cnp.ndarray weights_empty(tuple shape, object dtype):
    """As aligned_empty, for packed weights."""
    return _weights.empty(shape, dtype)


cdef cnp.ndarray cache_empty(tuple shape, object dtype):
    """As aligned_empty, for keys and values."""
    return _caches.empty(shape, dtype)


cdef int check_overlap(cnp.ndarray out, cnp.ndarray a, bint in_place, str func, str arg, str name="out") except -1:
    """Reject an output that overlaps an input, except (in_place) one that is exactly the same memory. Both are contiguous."""
    cdef char *p = <char *>cnp.PyArray_DATA(out)
    cdef char *q = <char *>cnp.PyArray_DATA(a)
    cdef cnp.npy_intp n = cnp.PyArray_NBYTES(out), m = cnp.PyArray_NBYTES(a)
    if p < q + m and q < p + n and not (in_place and p == q and n == m):
        raise ValueError(f"{func}: {name}: overlaps {arg}" + (" without being the same array" if in_place else ""))
    return 0


cdef int check_apart(cnp.ndarray out, object a, str func, str arg) except -1:
    """Reject an output that shares memory with an input, whatever its strides."""
    if cnp.PyArray_Check(a) and cnp.PyArray_ISCARRAY_RO(<cnp.ndarray>a):
        return check_overlap(out, <cnp.ndarray>a, False, func, arg)
    if np.may_share_memory(out, a):
        raise ValueError(f"{func}: out: overlaps {arg}")
    return 0


cdef int normalize_axis(object axis, int rank, str func, str arg="axis") except -1:
    if not PyLong_CheckExact(axis):
        if isinstance(axis, bool) or not hasattr(axis, "__index__"):
            raise TypeError(f"{func}: {arg}: expected an int, got {type(axis).__name__}")
        axis = axis.__index__()
    if not -rank <= axis < rank:
        raise ValueError(f"{func}: {arg}: expected {-rank} to {rank - 1} for rank {rank}, got {axis}")
    return axis + rank if axis < 0 else axis


cdef double number(object value, str func, str arg) except? -1:
    """A real number of any Python or NumPy type."""
    if PyFloat_CheckExact(value):
        return PyFloat_AS_DOUBLE(value)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"{func}: {arg}: expected a number, got {type(value).__name__}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{func}: {arg}: expected a number, got {value!r}") from None


cdef tuple check_outputs(object outputs, tuple offered, str func):
    """The indices of the outputs asked for, in the caller's order."""
    cdef tuple wanted
    cdef int seen = 0, index
    if type(outputs) is tuple and outputs:
        for output in outputs:
            if not PyLong_CheckExact(output) or output not in offered:
                break
            index = output
            if seen >> index & 1:
                break
            seen |= 1 << index
        else:
            return outputs
    wanted = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(offered):
        raise ValueError(f"{func}: outputs: expected distinct indices of {offered}, got {outputs}")
    return wanted


cdef object pick(dict results, tuple outputs):
    """One array, or a tuple in the order asked for."""
    return results[outputs[0]] if len(outputs) == 1 else tuple([results[o] for o in outputs])


cdef int num_threads(object threads, str func) except -1:
    """The number of threads of one call: `threads`, or the process's where it is None."""
    cdef int n
    if threads is None:
        return _runtime.threads(0)
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"{func}: threads: expected an int or None, got {type(threads).__name__}")
    if not 1 <= threads <= 1024:
        raise ValueError(f"{func}: threads: expected 1 to 1024, got {threads}")
    n = threads
    return _runtime.threads(n)


cdef int worth(int threads, cnp.npy_intp work, cnp.npy_intp grain) noexcept nogil:
    """Fewer threads for little work: at least `grain` units for each."""
    cdef cnp.npy_intp most = work // grain
    return 1 if most < 1 else threads if most >= threads else <int>most


cdef cnp.ndarray prologue(qk_prologue *p, object norm, object epsilon, object swiglu, cnp.npy_intp k, str func):
    """What `norm`, `epsilon` and `swiglu` of a product say; returns the array that must live as long as `p`, or None."""
    cdef cnp.ndarray scale = None
    p.kind = QK_AS_IS
    if swiglu is not False:
        if swiglu is not True:
            raise TypeError(f"{func}: swiglu: expected a bool, got {type_name(swiglu)}")
        if norm is not None:
            raise ValueError(f"{func}: norm: expected None with swiglu=True, got an array")
        p.kind = QK_SWIGLU
    elif norm is not None:
        scale = float_input(norm, FLOATS, func, "norm")
        check_shape(scale, (k,), func, "norm")
        p.kind, p.scale_dtype, p.scale, p.epsilon = QK_RMS_NORM, dtype_code(scale), cnp.PyArray_DATA(scale), number(epsilon, func, "epsilon")
    return scale


cdef cnp.ndarray residual_of(object residual, cnp.ndarray y, int code, str func):
    """The residual for the result y, which may be y itself."""
    cdef cnp.ndarray r
    if residual is y:
        return y
    r = same_float_input(residual, code, func, "residual")
    check_shape(r, shape_of(y), func, "residual")
    check_overlap(y, r, True, func, "residual")
    return r
