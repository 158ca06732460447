"""Products of float matrices: ai.onnx MatMul and Gemm, and a constant matrix prepared once."""
cimport numpy as cnp
from cpython.float cimport PyFloat_CheckExact
from libc.stdint cimport int64_t
from libc.stdlib cimport free
from posix.stdlib cimport posix_memalign

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "matmul/matmul.h" nogil:
    ctypedef struct qk_matmul_args:
        const void *a
        const char *b
        const void *bias
        const char *residual
        char *y
        float *prepared
        float *rows
        _arrays.qk_prologue prologue
        char *panels
        const int64_t *a_batch
        const int64_t *b_batch
        int a_dtype, b_dtype
        int64_t batches, m, n, k, a_rows, b_k_stride, b_n_stride
    void qk_matmul(int isa, int threads, const qk_matmul_args *args)
    void qk_matmul_pack(int isa, int threads, int dtype, const char *b, int64_t k, int64_t n, int64_t k_stride, int64_t n_stride, char *packed)

# multiplications for which starting a second thread pays; groups of columns that a thread may pack at once
cdef enum:
    GRAIN = 1 << 15
    PANEL_GROUPS = 4


cdef int _run(qk_matmul_args *args, int threads, str func) except -1:
    """Scratch, threads, and the one call."""
    cdef int64_t tasks = args.batches * ((args.n + 63) // 64) * ((args.m + 11) // 12), row = (args.k + 15) // 16 * 16 * 4, prepared = 0, panels, rows
    cdef void *scratch = NULL
    cdef bint pack = args.panels != NULL
    threads = _arrays.worth(threads, args.batches * args.m * args.n * (args.k + 1), GRAIN)
    if threads > tasks:
        threads = <int>tasks
    if args.m > 1 or args.a_dtype != _arrays.F32 or args.prologue.kind:
        prepared = args.a_rows * row
    rows = threads * row if args.prologue.kind else 0
    panels = threads * PANEL_GROUPS * args.k * 16 * 4 if pack else 0
    if prepared or panels:
        if posix_memalign(&scratch, 64, prepared + rows + panels + 64):
            raise MemoryError(f"{func}: {prepared + rows + panels} bytes of scratch")
    args.prepared = <float *>scratch if prepared else NULL
    args.rows = <float *>(<char *>scratch + prepared)
    args.panels = <char *>scratch + prepared + rows if pack else NULL
    with nogil:
        qk_matmul(_runtime.isa(), threads, args)
        free(scratch)
    return 0


cdef int64_t _FIRST = 0  # the offset of the only batch

_BY_NUMPY = tuple([np.dtype(t) for t in (np.float64, np.int32, np.int64, np.uint32, np.uint64)])
_NAMES = "float32, float16, bfloat16, float64, int32, int64, uint32 or uint64"


cdef cnp.ndarray _number_input(object x, str func, str arg):
    """A contiguous array of any type that a product may have."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, arg)
    if _arrays.dtype_code(a) < 0 and a.dtype not in _BY_NUMPY:
        raise TypeError(f"{func}: {arg}: expected dtype {_NAMES}, got {a.dtype}")
    return _arrays.contiguous(a)


def matmul(a, b, *, out=None, threads=None):
    """Matrix product with NumPy's rules for batches and vectors.

    ONNX ai.onnx MatMul, since version 13. Sums are float32, rounded once to the result's type.

    Parameters
    ----------
    a : array (..., M, K) or (K,), float32, float16 or bfloat16; also float64, int32, int64, uint32 or uint64, which NumPy multiplies
    b : array (..., K, N) or (K,), of a's dtype
        Leading dimensions broadcast against a's.
    out : ndarray, optional
        C-contiguous, of the result's shape and dtype.
    threads : int, optional

    Returns
    -------
    ndarray
        (..., M, N) of the operands' dtype, without the dimensions that vectors lack.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.matmul(np.float32([[1, 2]]), np.float32([[3], [4]]))
    array([[11.]], dtype=float32)
    """
    cdef str func = "matmul"
    cdef cnp.ndarray x = _number_input(a, func, "a"), w, y, a_offsets, b_offsets
    cdef int code = _arrays.dtype_code(x), n_threads = _arrays.num_threads(threads, func), itemsize
    cdef qk_matmul_args args
    cdef bint a_vector, b_vector
    # b keeps its strides: it is read or packed as it lies
    w = _arrays.as_array(b, func, "b")
    if w.dtype != x.dtype:
        raise TypeError(f"{func}: b: expected dtype {x.dtype}, got {w.dtype}")
    if x.ndim == 0 or w.ndim == 0:
        raise ValueError(f"{func}: {'a' if x.ndim == 0 else 'b'}: expected at least 1 dimension, got a 0-d array")
    itemsize = x.itemsize
    if not cnp.PyArray_ISCARRAY_RO(w) and (not cnp.PyArray_ISALIGNED(w) or any([s % itemsize for s in (<object>w).strides])):
        w = _arrays.contiguous(w.copy())
    a_shape, b_shape = _arrays.shape_of(x), _arrays.shape_of(w)
    a_vector, b_vector = len(a_shape) == 1, len(b_shape) == 1
    if a_vector:
        x = x.reshape(1, -1)
    if b_vector:
        w = w.reshape(-1, 1)
    if x.shape[x.ndim - 1] != w.shape[w.ndim - 2]:
        raise ValueError(f"{func}: b: expected shape ({'' if w.ndim == 2 else '..., '}{x.shape[x.ndim - 1]}, N) for a of shape {a_shape}, got {b_shape}")
    args.m, args.k, args.n = x.shape[x.ndim - 2], x.shape[x.ndim - 1], w.shape[w.ndim - 1]
    a_lead = () if x.ndim == 2 else _arrays.shape_of(x)[:x.ndim - 2]
    b_lead = () if w.ndim == 2 else _arrays.shape_of(w)[:w.ndim - 2]
    if not b_lead:
        lead = a_lead
    else:
        try:
            lead = np.broadcast_shapes(a_lead, b_lead)
        except ValueError:
            raise ValueError(f"{func}: b: leading dimensions {b_lead} do not broadcast with a's {a_lead}") from None
    shape = (args.m, args.n) if not (lead or a_vector or b_vector) else lead + (() if a_vector else (args.m,)) + (() if b_vector else (args.n,))
    y = _arrays.output_of(out, shape, x.dtype, func)
    if out is not None:
        _arrays.check_overlap(y, x, False, func, "a")
        _arrays.check_apart(y, w, func, "b")
    if y.size == 0:
        return y
    if code < 0:
        with np.errstate(all="ignore"):
            np.matmul(x, w, out=y.reshape(lead + (args.m, args.n)))
        return y
    args.a_rows = x.size // args.k if args.k else 0
    # without batches in b, a's are rows
    if w.size == args.k * args.n and lead == a_lead:
        for size in a_lead:
            args.m *= size
        w = w.reshape(args.k, args.n) if w.ndim > 2 else w
        args.batches, args.a_batch, args.b_batch = 1, &_FIRST, &_FIRST
    else:
        a_offsets = _offsets(a_lead, lead, [int(np.prod(a_lead[i + 1:], dtype=np.int64)) * args.m * args.k for i in range(len(a_lead))])
        b_offsets = _offsets(b_lead, lead, [s // itemsize for s in (<object>w).strides[:len(b_lead)]])
        args.batches = a_offsets.size
        args.a_batch, args.b_batch = <const int64_t *>cnp.PyArray_DATA(a_offsets), <const int64_t *>cnp.PyArray_DATA(b_offsets)
    args.a, args.b, args.y, args.bias = cnp.PyArray_DATA(x), <const char *>cnp.PyArray_DATA(w), <char *>cnp.PyArray_DATA(y), NULL
    args.a_dtype = args.b_dtype = code
    args.b_k_stride, args.b_n_stride = w.strides[w.ndim - 2] // itemsize, w.strides[w.ndim - 1] // itemsize
    args.prepared, args.panels = NULL, args.y  # any pointer: b is to be packed
    args.residual, args.prologue.kind = NULL, _arrays.QK_AS_IS
    _run(&args, n_threads, func)
    return y


cdef cnp.ndarray _gemm_operand(object x, object dtype, bint transposed, str func, str name):
    """A matrix as the product reads it: strides that count whole elements."""
    cdef cnp.ndarray a = _arrays.as_array(x, func, name)
    if dtype is not None and a.dtype != dtype:
        raise TypeError(f"{func}: {name}: expected dtype {dtype}, got {a.dtype}")
    if _arrays.dtype_code(a) < 0 and a.dtype not in _BY_NUMPY:
        raise TypeError(f"{func}: {name}: expected dtype {_NAMES}, got {a.dtype}")
    if a.ndim != 2:
        raise ValueError(f"{func}: {name}: expected 2 dimensions, got shape {_arrays.shape_of(a)}")
    if not cnp.PyArray_ISALIGNED(a) or a.strides[0] % cnp.PyArray_ITEMSIZE(a) or a.strides[1] % cnp.PyArray_ITEMSIZE(a):
        a = _arrays.contiguous(a)
    return (<object>a).T if transposed else a


cdef int _check_factor(object value, cnp.ndarray x, int code, str func, str name) except -1:
    if not PyFloat_CheckExact(value) and (isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer))):
        raise TypeError(f"{func}: {name}: expected a number, got {type(value).__name__}")
    if code < 0 and x.dtype.kind in "iu" and not float(value).is_integer():
        raise ValueError(f"{func}: {name}: expected a whole number for {x.dtype}, got {value}")
    return 0


def gemm(a, b, c=None, *, alpha=1.0, beta=1.0, transA=0, transB=0, out=None, threads=None):
    """``alpha · A' · B' + beta · C``, A' and B' optionally transposed.

    ONNX ai.onnx Gemm, since version 13. Float types up to 32 bits: everything is float32, rounded once to the result's type. float64 and integers go
    through NumPy; integers wrap.

    Parameters
    ----------
    a : array (M, K), float32, float16, bfloat16, float64, int32, int64, uint32 or uint64; (K, M) with `transA`
    b : array (K, N) of a's dtype; (N, K) with `transB`
    c : array of a's dtype that broadcasts to (M, N), optional
        Not read where beta is 0.
    alpha, beta : float, default 1
        In float32; in float64 for float64; whole numbers for integers.
    transA, transB : int, default 0
    out : ndarray (M, N), optional
    threads : int, optional

    Returns
    -------
    ndarray (M, N) of a's dtype

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.gemm(np.float32([[1, 2]]), np.float32([[3, 4]]), np.float32([10]), alpha=2.0, transB=1)
    array([[32.]], dtype=float32)
    """
    cdef str func = "gemm"
    cdef cnp.ndarray x = _gemm_operand(a, None, transA != 0, func, "a"), w, y, z = None, bias = None, product
    cdef int code = _arrays.dtype_code(x), n_threads = _arrays.num_threads(threads, func)
    cdef qk_matmul_args args
    cdef int64_t zero = 0
    w = _gemm_operand(b, x.dtype, transB != 0, func, "b")
    if x.shape[1] != w.shape[0]:
        raise ValueError(f"{func}: b: expected K = {x.shape[1]} as a of shape {np.shape(a)} has, got shape {np.shape(b)}")
    args.m, args.k, args.n = x.shape[0], x.shape[1], w.shape[1]
    shape = (args.m, args.n)
    _check_factor(alpha, x, code, func, "alpha")
    _check_factor(beta, x, code, func, "beta")
    if c is not None:
        z = _arrays.contiguous(_arrays.as_array(c, func, "c"))
        if z.dtype != x.dtype:
            raise TypeError(f"{func}: c: expected dtype {x.dtype}, got {z.dtype}")
        given = _arrays.shape_of(z)
        if len(given) > 2 or any([g not in (1, s) for g, s in zip(given[::-1], shape[::-1])]):
            raise ValueError(f"{func}: c: expected a shape that broadcasts to {shape}, got {given}")
        if beta == 0:
            z = None
        elif code >= 0 and beta == 1 and alpha == 1 and (len(given) < 2 or given[0] == 1):
            bias = _arrays.contiguous(np.broadcast_to(z.reshape(-1), (args.n,)))
            z = None
    y = _arrays.output_of(out, shape, x.dtype, func)
    if out is not None:
        _arrays.check_apart(y, a, func, "a")
        _arrays.check_apart(y, b, func, "b")
        if c is not None:
            _arrays.check_apart(y, c, func, "c")
    if not y.size:
        return y
    if code < 0:
        scalar = (lambda value: np.float64(value)) if x.dtype == np.float64 else (lambda value: np.array(int(value) & (2**64 - 1), np.uint64).astype(x.dtype))
        with np.errstate(all="ignore"):
            np.matmul(x, w, out=y)
            y *= scalar(alpha)
            if z is not None:
                y += scalar(beta) * (<object>z)
        return y
    # what follows the product must see it before it is rounded
    x, product = _arrays.contiguous(x), y
    if z is not None or alpha != 1:
        x = x.astype(np.float32)
        product = y if code == _arrays.F32 else np.empty(shape, np.float32)
    args.a_dtype, args.b_dtype = _arrays.dtype_code(x), code
    args.bias = NULL if bias is None else cnp.PyArray_DATA(bias)
    args.batches, args.a_rows = 1, args.m
    args.a_batch = args.b_batch = &zero
    args.a, args.b, args.y = cnp.PyArray_DATA(x), <const char *>cnp.PyArray_DATA(w), <char *>cnp.PyArray_DATA(product)
    args.b_k_stride, args.b_n_stride = w.strides[0] // w.itemsize, w.strides[1] // w.itemsize
    args.prepared, args.panels = NULL, args.y  # any pointer: b is to be packed
    args.residual, args.prologue.kind = NULL, _arrays.QK_AS_IS
    _run(&args, n_threads, func)
    if z is None and alpha == 1:
        return y
    scaled = <object>product
    if alpha != 1:
        scaled *= np.float32(alpha)
    if z is not None:
        scaled += np.float32(beta) * (<object>z).astype(np.float32)
    if product is not y:
        with np.errstate(over="ignore"):
            y[...] = scaled
    return y


cdef cnp.ndarray _offsets(tuple own, tuple lead, list strides):
    """Element offset of each batch of the broadcast shape `lead`, for an operand with leading dimensions `own` and their strides."""
    offsets = np.zeros(lead, np.int64)
    for axis, (size, stride) in enumerate(zip(own, strides), len(lead) - len(own)):
        if size > 1:
            offsets += (np.arange(size, dtype=np.int64) * stride).reshape((-1,) + (1,) * (len(lead) - 1 - axis))
    return np.ascontiguousarray(offsets).reshape(-1)


cdef class PackedMatrix:
    """A constant matrix prepared once for products, kept in its own type (16-bit weights stay 16 bits).

    Immutable; one packed form for all instruction sets.

    Parameters
    ----------
    b : array (K, N), float32, float16 or bfloat16
        With `trans_b` (N, K), as `torch.nn.Linear` keeps weights; then also a sequence of arrays to stack along N.
    trans_b : bool, default False
    dtype : dtype, optional
        Type in which to keep the weights; default b's own. Arrays are converted one at a time.
    threads : int, optional
        For packing.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> w = qkernels.PackedMatrix(np.float32([[1, 2], [3, 4]]))
    >>> w(np.float32([1, 1]))
    array([4., 6.], dtype=float32)
    """

    cdef cnp.ndarray _packed
    cdef int _code
    cdef int64_t _k, _n

    def __init__(self, b, *, trans_b=False, dtype=None, threads=None):
        cdef str func = "PackedMatrix"
        cdef cnp.ndarray w
        cdef int n_threads = _arrays.num_threads(threads, func)
        cdef int64_t k_stride, n_stride, k, n, total, itemsize
        cdef char *target
        arrays = list(b) if isinstance(b, (list, tuple)) else [b]
        if len(arrays) > 1 and not trans_b or not arrays:
            raise ValueError(f"{func}: b: expected one array, or with trans_b several to stack along N, got {len(arrays)}")
        arrays = [_arrays.as_array(w, func, "b") for w in arrays]
        for w in arrays:
            if _arrays.dtype_code(w) < 0:
                raise TypeError(f"{func}: b: expected dtype float32 or float16 or bfloat16, got {w.dtype}")
            if w.ndim != 2:
                raise ValueError(f"{func}: b: expected 2 dimensions, got shape {_arrays.shape_of(w)}")
            if w.dtype != arrays[0].dtype or trans_b and w.shape[1] != arrays[0].shape[1]:
                raise ValueError(f"{func}: b: expected arrays of one dtype and K to stack, got {arrays[0].dtype} {arrays[0].shape} "
                                 f"and {w.dtype} {_arrays.shape_of(w)}")
        w = arrays[0]
        kept = w.dtype if dtype is None else np.dtype(dtype)
        self._code, itemsize = _arrays.dtype_code(np.empty(0, kept)), kept.itemsize
        if self._code < 0:
            raise TypeError(f"{func}: dtype: expected float32 or float16 or bfloat16, got {kept}")
        self._k = w.shape[1] if trans_b else w.shape[0]
        self._n = total = sum([w.shape[0] for w in arrays]) if trans_b else w.shape[1]
        if len(arrays) > 1 and any([w.shape[0] % 16 for w in arrays[:len(arrays) - 1]]):
            arrays = [np.concatenate(arrays)]
        self._packed = _arrays.weights_empty(((total + 15) // 16, self._k, 16), kept)
        target = <char *>cnp.PyArray_DATA(self._packed)
        for w in arrays:
            if w.dtype != kept:
                w = w.astype(kept)
            if not cnp.PyArray_ISALIGNED(w) or w.strides[0] % itemsize or w.strides[1] % itemsize:
                w = w.copy()
            k, n = (w.shape[1], w.shape[0]) if trans_b else (w.shape[0], w.shape[1])
            k_stride, n_stride = w.strides[1 if trans_b else 0] // itemsize, w.strides[0 if trans_b else 1] // itemsize
            n_threads = _arrays.worth(n_threads, k * n, 1 << 16)
            with nogil:
                qk_matmul_pack(_runtime.isa(), n_threads, self._code, <const char *>cnp.PyArray_DATA(w), k, n, k_stride, n_stride, target)
            target += (n + 15) // 16 * 16 * k * itemsize

    @property
    def shape(self):
        """(N, K): outputs and inputs."""
        return self._n, self._k

    @property
    def nbytes(self):
        """Bytes of the packed matrix."""
        return self._packed.nbytes

    @property
    def dtype(self):
        """Type in which the weights are kept."""
        return self._packed.dtype

    def __repr__(self):
        return f"PackedMatrix(N={self._n}, K={self._k}, dtype={self.dtype}, nbytes={self.nbytes})"

    def __call__(self, x, *, bias=None, activations="f32", norm=None, epsilon=1e-5, swiglu=False, residual=None, out=None, threads=None):
        """``x @ b + bias + residual``, x normalized or gated before; all in float32, rounded once.

        For float32 the same bits as with `rms_normalization` or `silu_mul` before and `add` after it.

        Parameters
        ----------
        x : array (..., K), float32, float16 or bfloat16
        bias : array (N,) of x's dtype, optional
        norm : array (K,), optional
            Of any float type: x is first normalized as by `rms_normalization`, with `epsilon`.
        epsilon : float, default 1e-5
        swiglu : bool, default False
            x is (..., 2 K), gate then up, and their `silu_mul` is what is multiplied.
        residual : array (..., N) of x's dtype, optional
            Added to the result, after the bias; may be `out`.
        activations : {"f32"}
            As for the other packed weights, which know more.
        out : ndarray (..., N) of x's dtype, optional
        threads : int, optional

        Returns
        -------
        ndarray (..., N) of x's dtype
        """
        cdef str func = "PackedMatrix"
        cdef cnp.ndarray a = _arrays.float_input(x, _arrays.FLOATS, func, "x"), c = None, y, r = None, scale
        cdef qk_matmul_args args
        cdef int64_t zero = 0, width
        cdef int rank = a.ndim
        if activations != "f32":
            raise ValueError(f"{func}: activations: expected f32, got {activations!r}")
        scale = _arrays.prologue(&args.prologue, norm, epsilon, swiglu, self._k, func)
        width = 2 * self._k if args.prologue.kind == _arrays.QK_SWIGLU else self._k
        if rank == 0 or a.shape[rank - 1] != width:
            raise ValueError(f"{func}: x: expected shape (..., {width}), got {_arrays.shape_of(a)}")
        args.a_dtype, args.b_dtype, args.bias = _arrays.dtype_code(a), self._code, NULL
        if bias is not None:
            c = _arrays.same_float_input(bias, args.a_dtype, func, "bias")
            _arrays.check_shape(c, (self._n,), func, "bias")
            args.bias = cnp.PyArray_DATA(c)
        y = _arrays.output(out, _arrays.shape_of(a)[:rank - 1] + (self._n,), args.a_dtype, func)
        if out is not None:
            _arrays.check_overlap(y, a, False, func, "x")
            if c is not None:
                _arrays.check_overlap(y, c, False, func, "bias")
            if scale is not None:
                _arrays.check_overlap(y, scale, False, func, "norm")
        args.residual = NULL
        if residual is not None:
            r = _arrays.residual_of(residual, y, args.a_dtype, func)
            args.residual = <const char *>cnp.PyArray_DATA(r)
        if y.size == 0:
            return y
        args.batches, args.k, args.n = 1, self._k, self._n
        args.m = args.a_rows = y.size // self._n
        args.a, args.b, args.y = cnp.PyArray_DATA(a), <const char *>cnp.PyArray_DATA(self._packed), <char *>cnp.PyArray_DATA(y)
        args.a_batch = args.b_batch = &zero
        args.prepared, args.panels = NULL, NULL
        args.b_k_stride = args.b_n_stride = 0
        _run(&args, _arrays.num_threads(threads, func), func)
        return y

    def take_rows(self, indices, *, out=None, threads=None):
        """Columns of the (K, N) matrix, that is rows of the transposed one, as float32: ``indices.shape + (K,)``.

        Raises
        ------
        IndexError
            For an index outside the N rows.
        """
        cdef str func = "PackedMatrix.take_rows"
        cdef cnp.ndarray rows = _arrays.int_input(indices, func, "indices"), y
        y = _arrays.output(out, _arrays.shape_of(rows) + (self._k,), _arrays.F32, func)
        wrong = (rows < -self._n) | (rows >= self._n)
        if wrong.any():
            raise IndexError(f"{func}: indices: expected {-self._n} to {self._n - 1}, got {rows[wrong].flat[0]}")
        y[...] = self._packed[rows % self._n // 16, :, rows % self._n % 16] if rows.size else 0
        return y
