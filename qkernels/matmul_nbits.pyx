"""Products with block-quantized weights: com.microsoft MatMulNBits and its prepared form."""
cimport numpy as cnp
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from posix.stdlib cimport posix_memalign

from qkernels cimport _arrays, _runtime

import ml_dtypes
import numpy as np

cnp.import_array()

_tiers = ("scalar", "avx2", "avx512", "amx")

cdef extern from "matmul_nbits/matmul_nbits.h" nogil:
    ctypedef struct qk_nbits_args:
        const qk_nbits *w
        const void *a
        const void *bias
        const void *residual
        void *y
        int dtype, activations
        int64_t m
        _arrays.qk_prologue prologue
        char *scratch
        float *rows
    ctypedef struct qk_nbits_part:
        const void *rows
        int64_t n
    ctypedef struct qk_nbits_source:
        const uint8_t *codes
        const void *scales
        const void *zeros
        const int64_t *order
        const int64_t *blocks
        int code_bits, zero_bits, flip
        int64_t code_column, code_k, scale_column, scale_block, zero_column, zero_block
    int QK_ZP_DEFAULT, QK_ZP_U8, QK_ZP_F32, QK_SYMMETRIC_FULL, QK_SYMMETRIC_ABS, QK_ASYMMETRIC, QK_SCALES_ROUNDED
    int64_t qk_nbits_row_floats(int64_t k)
    int64_t qk_nbits_scratch(const qk_nbits *w, int activations, int64_t m)
    void qk_nbits_matmul(int isa, int threads, const qk_nbits_args *args)
    int qk_nbits_quantize(int isa, int threads, const qk_nbits *w, const qk_nbits_part *parts, int dtype, int rounding)
    void qk_nbits_pack(int threads, const qk_nbits *w, const qk_nbits_source *source)
    void qk_nbits_unpack(int threads, const qk_nbits *w, uint8_t *b, void *scales, uint8_t *zero_points_u8, float *zero_points_f32)
    void qk_nbits_take_rows(int threads, const qk_nbits *w, const int64_t *rows, int64_t count, float *y)

# multiplications for which starting a second thread pays
cdef enum:
    GRAIN = 1 << 18

_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
# types of codes in from_codes: bits, and what makes them unsigned
_CODES = {np.dtype(t): (bits, flip) for t, bits, flip in (
    (ml_dtypes.uint2, 2, 0), (ml_dtypes.int2, 2, 2), (ml_dtypes.uint4, 4, 0), (ml_dtypes.int4, 4, 8), (np.uint8, 8, 0), (np.int8, 8, 128))}

ACTIVATIONS = ("f32", "int8", "int16")  # the index is the number of int8 digits
cdef tuple _NAMES = ACTIVATIONS


cdef int64_t _dimension(object value, str func, str name, int64_t least) except -1:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{func}: {name}: expected an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{func}: {name}: expected at least {least}, got {value}")
    return value


cdef int _activations(object name, str func) except -1:
    cdef int digits
    for digits in range(3):
        if name is _NAMES[digits]:
            return digits
    if name not in ACTIVATIONS:
        raise ValueError(f"{func}: activations: expected one of {', '.join(ACTIVATIONS)}, got {name!r}")
    return ACTIVATIONS.index(name)


cdef cnp.ndarray _narrow(cnp.ndarray scales):
    """Contiguous float32 scales in 16 bits where that loses nothing: those of weights born in bfloat16."""
    if _arrays.dtype_code(scales) != _arrays.F32:
        return scales
    halves = (<object>scales).reshape(-1).view(np.uint16).reshape(-1, 2)
    if halves[:4096, 0].any() or halves[:, 0].any():  # most show it at once
        return scales
    return halves[:, 1].copy().view(ml_dtypes.bfloat16).reshape(_arrays.shape_of(scales))


cdef class PackedBlocks:
    """What the prepared weights have in common: the packed buffers and the product with them."""

    def __cinit__(self, *args, **kwargs):
        # an object made by __new__ alone has no weights, and must not divide by its block size
        self.w.bits, self.w.block_size, self._buffers = 4, 32, (None, None, None)

    cdef int _allocate(self, object n, object k, int bits, int64_t block_size, object scale_dtype, int zp_kind) except -1:
        cdef int64_t pad = 1
        self.w.bits, self.w.n, self.w.k, self.w.block_size = bits, n, k, block_size
        self.k, self._order, self._groups = k, None, None
        self.w.groups, self.w.k_tiles = (self.w.n + 15) // 16, (self.w.k + 31) // 32
        self.w.blocks = 2 * self.w.k_tiles if block_size == 16 else max(pad, (self.w.k + block_size - 1) // block_size)
        tiles, per_block = self._empty((self.w.groups, self.w.k_tiles, 64 * bits), np.uint8), (self.w.groups, self.w.blocks, 16)
        zero_points = None if zp_kind == QK_ZP_DEFAULT else self._empty(per_block, np.uint8 if zp_kind == QK_ZP_U8 else np.float32)
        self.w.zp_kind = zp_kind
        # float32 scales may yet become narrower
        scales = _arrays.aligned_empty(per_block, scale_dtype) if scale_dtype == np.float32 else self._empty(per_block, scale_dtype)
        self._set_buffers(tiles, scales, zero_points)
        return 0

    cdef cnp.ndarray _empty(self, tuple shape, object dtype):
        return _arrays.aligned_empty(shape, dtype) if self._once else _arrays.weights_empty(shape, dtype)

    cdef int _set_buffers(self, cnp.ndarray tiles, cnp.ndarray scales, cnp.ndarray zero_points) except -1:
        self._buffers = (tiles, scales, zero_points)
        self.w.tiles, self.w.scales = <uint8_t *>cnp.PyArray_DATA(tiles), cnp.PyArray_DATA(scales)
        self.w.zero_points = NULL if zero_points is None else cnp.PyArray_DATA(zero_points)
        self.w.scale_dtype = _arrays.dtype_code(scales)
        return 0

    cdef int _quantize(self, object weights, int bits, object block_size, int rounding, int zp_kind, object threads, str func) except -1:
        cdef list arrays = list(weights) if isinstance(weights, (list, tuple)) else [weights]
        cdef qk_nbits_part parts[16]
        cdef cnp.ndarray a, scales, packed
        cdef int i, code = -1, bad, n_threads = _arrays.num_threads(threads, func)
        cdef object n = 0, k = 0
        if not 1 <= len(arrays) <= 16:
            raise ValueError(f"{func}: w: expected 1 to 16 arrays to stack, got {len(arrays)}")
        for i in range(len(arrays)):
            a = arrays[i] = _arrays.float_input(arrays[i], _arrays.FLOATS, func, "w")
            if a.ndim != 2:
                raise ValueError(f"{func}: w: expected 2 dimensions (N, K), got shape {_arrays.shape_of(a)}")
            if i and (a.shape[1] != k or _arrays.dtype_code(a) != code):
                raise ValueError(f"{func}: w: expected arrays of one dtype and K to stack, got {arrays[0].dtype} {arrays[0].shape} "
                                 f"and {a.dtype} {_arrays.shape_of(a)}")
            code, k = _arrays.dtype_code(a), a.shape[1]
            n += a.shape[0]
            parts[i].rows, parts[i].n = cnp.PyArray_DATA(a), a.shape[0]
        # a power of two below a bfloat16 is one, unless it is subnormal
        likely = ml_dtypes.bfloat16 if code == _arrays.BF16 and rounding == QK_SYMMETRIC_FULL else np.float32
        self._allocate(n, k, bits, max(32, k) if block_size is None else block_size, likely, zp_kind)
        n_threads = _arrays.worth(n_threads, self.w.n * self.w.k, GRAIN)
        with nogil:
            bad = qk_nbits_quantize(_runtime.isa(), n_threads, &self.w, parts, code, rounding)
        if bad == QK_SCALES_ROUNDED:
            self._set_buffers(self._buffers[0], _arrays.aligned_empty(_arrays.shape_of(self._buffers[1]), np.float32), self._buffers[2])
            with nogil:
                bad = qk_nbits_quantize(_runtime.isa(), n_threads, &self.w, parts, code, rounding)
        if bad:
            raise ValueError(f"{func}: w: expected finite weights, got an infinity or a NaN")
        scales = _narrow(self._buffers[1])
        if scales is not self._buffers[1]:
            packed = self._empty(_arrays.shape_of(scales), ml_dtypes.bfloat16)
            (<object>packed)[...] = scales
            self._set_buffers(self._buffers[0], packed, self._buffers[2])
        return 0

    cdef object _multiply(self, object x, object bias, int activations, object out, object threads, str func, str name, object norm=None,
                          object epsilon=None, object swiglu=False, object residual=None):
        cdef cnp.ndarray a = _arrays.float_input(x, _arrays.FLOATS, func, name), b = None, y, r = None, scale
        cdef qk_nbits_args args
        cdef int n_threads, rank = a.ndim
        cdef void *scratch = NULL
        cdef int64_t work, width, prepared, rows = 0
        scale = _arrays.prologue(&args.prologue, norm, epsilon, swiglu, self.k, func)
        width = 2 * self.k if args.prologue.kind == _arrays.QK_SWIGLU else self.k
        if args.prologue.kind and self._order is not None:
            raise ValueError(f"{func}: {'norm' if scale is not None else 'swiglu'}: not for weights with g_idx")
        if rank == 0 or a.shape[rank - 1] != width:
            raise ValueError(f"{func}: {name}: expected shape (..., {width}), got {_arrays.shape_of(a)}")
        args.dtype, args.activations, args.w = _arrays.dtype_code(a), activations, &self.w
        args.bias = NULL
        if bias is not None:
            b = _arrays.same_float_input(bias, args.dtype, func, "bias")
            _arrays.check_shape(b, (self.w.n,), func, "bias")
            args.bias = cnp.PyArray_DATA(b)
        y = _arrays.output(out, _arrays.shape_of(a)[:rank - 1] + (self.w.n,), args.dtype, func)
        if out is not None:
            _arrays.check_overlap(y, a, False, func, name)
            if b is not None:
                _arrays.check_overlap(y, b, False, func, "bias")
            if scale is not None:
                _arrays.check_overlap(y, scale, False, func, "norm")
        args.residual = NULL
        if residual is not None:
            r = _arrays.residual_of(residual, y, args.dtype, func)
            args.residual = cnp.PyArray_DATA(r)
        n_threads = _arrays.num_threads(threads, func)
        if y.size == 0:
            return y
        args.m = y.size // self.w.n
        if self._order is not None:
            a = self._reordered(a)
        args.a, args.y = cnp.PyArray_DATA(a), cnp.PyArray_DATA(y)
        work = args.m * self.w.n * (self.w.k + 1)
        n_threads = _arrays.worth(n_threads, work, GRAIN)
        if n_threads > self.w.groups:
            n_threads = <int>self.w.groups
        prepared = (qk_nbits_scratch(&self.w, activations, args.m) + 63) // 64 * 64
        if args.prologue.kind:
            rows = 4 * qk_nbits_row_floats(self.k) * n_threads
        if posix_memalign(&scratch, 64, prepared + rows + 64):
            raise MemoryError(f"{func}: scratch for {args.m} rows")
        args.scratch = <char *>scratch
        args.rows = <float *>(args.scratch + prepared)
        with nogil:
            qk_nbits_matmul(_runtime.isa(), n_threads, &args)
            free(scratch)
        return y

    cdef object _reordered(self, object a):
        """Activations in the order of the packed weights, zeros where groups were padded."""
        moved = np.zeros(a.shape[:a.ndim - 1] + (self.w.k,), a.dtype)
        inside = self._order >= 0
        moved[..., inside] = a[..., self._order[inside]]
        return moved

    @property
    def shape(self):
        """(N, K): outputs and inputs."""
        return self.w.n, self.k

    @property
    def nbytes(self):
        """Bytes of the packed weights, scales and zero points."""
        return sum([b.nbytes for b in self._buffers if b is not None])

    @property
    def buffers(self):
        """The packed arrays, read-only: tiles, scales, zero points (or None)."""
        views = []
        for b in self._buffers:
            if b is not None:
                b = b.view()
                b.flags.writeable = False
            views.append(b)
        return tuple(views)

    def take_rows(self, indices, *, dtype=np.float32, out=None, threads=None):
        """Dequantized rows of the weights, only these.

        Parameters
        ----------
        indices : array of int
            Output features (rows of the (N, K) matrix), negative ones from the end; any shape.
        dtype : {float32, float16, bfloat16}, default float32
            Of the result: the float32 products, rounded once. With the scales' own type it is what DequantizeLinear and Gather give.
        out : ndarray, optional
        threads : int, optional

        Returns
        -------
        ndarray
            Shape ``indices.shape + (K,)``.

        Raises
        ------
        TypeError
            For a dtype.
        IndexError
            For an index outside the N rows.
        """
        cdef str func = f"{type(self).__name__}.take_rows"
        cdef cnp.ndarray rows = _arrays.int_input(indices, func, "indices"), y, result
        cdef int n_threads = _arrays.num_threads(threads, func)
        kept = np.dtype(dtype)
        if kept not in _FLOATS:
            raise TypeError(f"{func}: dtype: expected float32, float16 or bfloat16, got {dtype}")
        result = _arrays.output_of(out, _arrays.shape_of(rows) + (self.k,), kept, func)
        y = result if kept == np.float32 and self._order is None else np.empty(_arrays.shape_of(rows) + (self.w.k,), np.float32)
        if rows.size:
            wrong = (rows < -self.w.n) | (rows >= self.w.n)
            if wrong.any():
                raise IndexError(f"{func}: indices: expected {-self.w.n} to {self.w.n - 1}, got {rows[wrong].flat[0]}")
            rows = np.where(rows < 0, rows + self.w.n, rows)
            n_threads = _arrays.worth(n_threads, y.size, 1 << 14)
            with nogil:
                qk_nbits_take_rows(n_threads, &self.w, <const int64_t *>cnp.PyArray_DATA(rows), cnp.PyArray_SIZE(rows),
                                   <float *>cnp.PyArray_DATA(y))
        if y is not result:
            if self._order is None:
                result[...] = y
            else:
                inside = self._order >= 0
                (<object>result)[..., self._order[inside]] = (<object>y)[..., inside]
        return result


cdef class PackedNBits(PackedBlocks):
    """Weights in 2, 4 or 8 bits with a scale for each block along K, prepared once for `matmul_nbits`.

    Immutable. The packed form is one for all instruction sets and stays compressed: the kernels read it as it is.

    Parameters
    ----------
    b : array, uint8, (N, ceil(K / block_size), block_size * bits / 8)
        Serialized codes, the first in a byte's lowest bits, as com.microsoft MatMulNBits has them.
    scales : array, float32, float16 or bfloat16, (N, blocks) or (N * blocks,)
    zero_points : array, optional
        uint8 (N, ceil(blocks * bits / 8)) or flat: packed like `b`; or a float type (N, blocks) or flat. Default ``2**(bits - 1)``.
    K, N : int
        Input and output features.
    bits : {2, 4, 8}, default 4
    block_size : int, default 32
        A power of two, at least 16.
    g_idx : array of integers, (K,) or (blocks * block_size,), optional
        The block whose scale and zero point each input uses, in place of ``k // block_size``. Inputs are reordered by block when packed, and
        the activations at each call; a block that then has another number of inputs than block_size is padded.
    threads : int, optional
        For packing.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was expected and what came.

    Notes
    -----
    com.microsoft MatMulNBits, since version 1. `activations` of a call names how the activations enter: "f32" as they are; "int8" and "int16"
    rounded per block of 32 (of 16 where the weights' blocks have 16), which permits integer dot products. The root mean square error of
    int16 is near that of float32; int8 is what accuracy_level 4 permits. An infinity or NaN in a row makes the row NaN in both.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> b, scales, _ = qkernels.quantize_nbits(np.eye(32, dtype=np.float32))
    >>> w = qkernels.PackedNBits(b, scales, K=32, N=32)
    >>> w(np.arange(32, dtype=np.float32))[:4]
    array([0., 1., 2., 3.], dtype=float32)
    """

    def __init__(self, b, scales, zero_points=None, *, K, N, bits=4, block_size=32, g_idx=None, threads=None):
        self._pack(b, scales, zero_points, g_idx, K, N, bits, block_size, threads, "PackedNBits")

    cdef int _pack(self, object b, object scales, object zero_points, object g_idx, object k_, object n_, object bits, object block_size,
                   object threads, str func) except -1:
        cdef qk_nbits_source source
        cdef cnp.ndarray order = None, order_blocks = None
        cdef int64_t k = _dimension(k_, func, "K", 1), n = _dimension(n_, func, "N", 0), blocks
        cdef int n_threads = _arrays.num_threads(threads, func), zp_kind = QK_ZP_DEFAULT
        cdef cnp.ndarray codes, s, z = None
        cdef object serialized = block_size
        _check_form(bits, block_size, func)
        blocks = (k + block_size - 1) // block_size
        codes = _arrays.as_array(b, func, "b")
        if codes.dtype != np.uint8:
            raise TypeError(f"{func}: b: expected dtype uint8, got {codes.dtype}")
        codes = _arrays.contiguous(codes)
        _arrays.check_shape(codes, (n, blocks, block_size * bits // 8), func, "b")
        s = _narrow(_flat_or_rows(_arrays.float_input(scales, _arrays.FLOATS, func, "scales"), n, blocks, func, "scales"))
        if zero_points is not None:
            z = _arrays.as_array(zero_points, func, "zero_points")
            if z.dtype == np.uint8:
                zp_kind = QK_ZP_U8
                z = _flat_or_rows(_arrays.contiguous(z), n, (blocks * bits + 7) // 8, func, "zero_points")
            else:
                if _arrays.dtype_code(z) < 0:
                    raise TypeError(f"{func}: zero_points: expected dtype uint8, float32, float16 or bfloat16, got {z.dtype}")
                zp_kind = QK_ZP_F32
                z = _flat_or_rows(_arrays.contiguous(z.astype(np.float32)), n, blocks, func, "zero_points")
        source.order = source.blocks = NULL
        if g_idx is not None:
            order, order_blocks, block_size = _order_of(g_idx, k, blocks, block_size, func)
            source.order, source.blocks = <const int64_t *>cnp.PyArray_DATA(order), <const int64_t *>cnp.PyArray_DATA(order_blocks)
        source.codes, source.scales = <const uint8_t *>cnp.PyArray_DATA(codes), cnp.PyArray_DATA(s)
        source.code_bits, source.flip = bits, 0
        source.code_column, source.code_k = _arrays.shape_of(codes)[1] * _arrays.shape_of(codes)[2] * 8 // bits, 1
        source.scale_column, source.scale_block = blocks, 1
        source.zeros, source.zero_bits, source.zero_column, source.zero_block = NULL, bits, blocks, 1
        if zp_kind == QK_ZP_U8:
            source.zero_column = (blocks * bits + 7) // 8 * 8 // bits
        if z is not None:
            source.zeros = cnp.PyArray_DATA(z)
        self._allocate(n, k if order is None else order.size, bits, block_size, s.dtype, zp_kind)
        if order is not None:
            self.k, self._order, self._groups = k, order, (order_blocks, serialized)
        self._pack_source(&source, n_threads)
        return 0

    cdef int _pack_source(self, qk_nbits_source *source, int n_threads) except -1:
        n_threads = _arrays.worth(n_threads, self.w.n * self.w.k, GRAIN)
        with nogil:
            qk_nbits_pack(n_threads, &self.w, source)
        return 0

    @staticmethod
    def from_codes(codes, scales, zero_points=None, *, axis, block_size=32, bits=None, dtype=None, shape=None, threads=None):
        """Pack the quantized weights of a DequantizeLinear, as they are in its inputs.

        Parameters
        ----------
        codes : array
            The two-dimensional matrix: ``ml_dtypes`` uint4, int4, uint2 or int2, or uint8 or int8, any strides; uint8 also for codes of
            fewer `bits`, one in each byte. Or the bytes of a serialized tensor of `shape`, uint8: 2 or 4 bits for each element in C order, the
            first in the lowest.
        scales : array, float32, float16 or bfloat16
            (N, blocks) for `axis` 1, (blocks, N) for `axis` 0, with ``blocks = ceil(K / block_size)``; (N,) for block_size 0.
        zero_points : array, optional
            Of codes' type and scales' shape, or its serialized bytes. Default 0 as in DequantizeLinear.
        axis : {0, 1}
            Which axis of the codes is K, along which the blocks run: 1 for (N, K), an embedding or ``x @ w.T``; 0 for (K, N), the second
            operand of a MatMul.
        block_size : int, default 32
            A power of two, at least 16, or any number from K on; 0 for one scale for each output.
        bits : {2, 4, 8}, optional
            Of unsigned codes that come as uint8; dtype says the same and more.
        dtype : dtype, optional
            Type of the codes where they come as uint8.
        shape : (int, int), optional
            Shape of the matrix where `codes` are serialized bytes.
        threads : int, optional

        Returns
        -------
        PackedNBits
            Its `take_rows` gives, in the scales' type, the bits of dequantize_linear.

        Raises
        ------
        TypeError, ValueError

        Examples
        --------
        >>> import ml_dtypes, numpy as np, qkernels
        >>> codes = np.arange(32, dtype=np.uint8).reshape(16, 2) % 16  # (K, N)
        >>> w = qkernels.PackedNBits.from_codes(codes.astype(ml_dtypes.uint4), np.float32([[1, 2]]), axis=0, block_size=16)
        >>> w(np.ones(16, np.float32))
        array([112., 256.], dtype=float32)
        >>> packed = qkernels.pack_int4(codes)
        >>> w = qkernels.PackedNBits.from_codes(packed, np.float32([[1, 2]]), axis=0, block_size=16, bits=4, shape=(16, 2))
        >>> w.take_rows([1])[0, :4]
        array([ 2.,  6., 10., 14.], dtype=float32)
        """
        cdef str func = "PackedNBits.from_codes"
        cdef PackedNBits packed = PackedNBits.__new__(PackedNBits)
        cdef qk_nbits_source source
        cdef cnp.ndarray c = _arrays.as_array(codes, func, "codes"), s, z = None
        cdef int n_threads = _arrays.num_threads(threads, func), zp_kind = QK_ZP_U8, code_bits
        cdef int64_t n, k, blocks
        if axis not in (0, 1) or isinstance(axis, bool):
            raise ValueError(f"{func}: axis: expected 0 or 1, got {axis}")
        kind = _codes_dtype(c.dtype, bits, dtype, func)
        code_bits, source.flip = _CODES[kind]
        if shape is None:
            if c.ndim != 2:
                raise ValueError(f"{func}: codes: expected 2 dimensions, or bytes and their shape=, got shape {_arrays.shape_of(c)}")
            shape = _arrays.shape_of(c)
        else:
            if c.dtype != np.uint8 or code_bits == 8:
                raise TypeError(f"{func}: codes: expected dtype uint8 of 2- or 4-bit codes where shape is given, got {c.dtype} for {kind}")
            shape = tuple([_dimension(value, func, "shape", 0) for value in shape])
            if len(shape) != 2:
                raise ValueError(f"{func}: shape: expected 2 dimensions, got {shape}")
        n, k = shape[1 - axis], shape[axis]
        if k < 1:
            raise ValueError(f"{func}: codes: expected K of at least 1 along axis {axis}, got shape {shape}")
        block_size = _dimension(block_size, func, "block_size", 0)
        per_output = block_size == 0
        if block_size == 0 or block_size >= k:
            block_size = max(32, 1 << (int(k) - 1).bit_length())
        _check_form(code_bits, block_size, func)
        blocks = (k + block_size - 1) // block_size
        c = _flat_codes(c, kind, n * k, shape, func, "codes")
        source.code_bits = 8 if c.size == n * k else code_bits
        if axis == 1:
            source.code_column, source.code_k, source.scale_column, source.scale_block = k, 1, blocks, 1
        else:
            source.code_column, source.code_k, source.scale_column, source.scale_block = 1, n, 1, n
        if per_output:
            source.scale_column, source.scale_block = 1, 0
        s = _arrays.float_input(scales, _arrays.FLOATS, func, "scales")
        expected = (n, blocks) if axis == 1 else (blocks, n)
        if per_output:
            expected = (n,)
        _arrays.check_shape(s, expected, func, "scales")
        s = _narrow(s)
        if zero_points is None:
            z = np.zeros(s.size, np.uint8)
        else:
            z = _arrays.as_array(zero_points, func, "zero_points")
            if z.dtype != kind and z.dtype != np.uint8:
                raise TypeError(f"{func}: zero_points: expected dtype {kind}, got {z.dtype}")
            z = _flat_codes(z, kind, s.size, expected, func, "zero_points")
        source.zero_bits = 8 if z.size == s.size else code_bits
        source.zero_column, source.zero_block = source.scale_column, source.scale_block
        if (_low_codes(z, source.zero_bits, code_bits, s.size) ^ source.flip == 1 << (code_bits - 1)).all():
            zp_kind = QK_ZP_DEFAULT  # the middle everywhere
        source.codes, source.scales, source.zeros = <const uint8_t *>cnp.PyArray_DATA(c), cnp.PyArray_DATA(s), cnp.PyArray_DATA(z)
        source.order = source.blocks = NULL
        packed._allocate(n, k, code_bits, block_size, s.dtype, zp_kind)
        packed._pack_source(&source, n_threads)
        return packed

    @staticmethod
    def quantize(w, *, bits=4, block_size=32, symmetric=True, threads=None):
        """Round weights to the nearest code and pack them, without the serialized form between.

        Parameters
        ----------
        w : array (N, K), float32, float16 or bfloat16, or a sequence of up to 16 of them to stack along N
        bits, block_size, symmetric, threads
            As in `quantize_nbits`.

        Returns
        -------
        PackedNBits

        Examples
        --------
        >>> import numpy as np, qkernels
        >>> qkernels.PackedNBits.quantize([np.ones((3, 40), np.float32), np.zeros((2, 40), np.float32)]).shape
        (5, 40)
        """
        cdef PackedNBits packed = PackedNBits.__new__(PackedNBits)
        _check_form(bits, block_size, "quantize_nbits")
        packed._quantize(w, bits, block_size, QK_SYMMETRIC_FULL if symmetric else QK_ASYMMETRIC,
                         QK_ZP_DEFAULT if symmetric else QK_ZP_U8, threads, "quantize_nbits")
        return packed

    def __call__(self, x, *, bias=None, activations="f32", norm=None, epsilon=1e-5, swiglu=False, residual=None, out=None, threads=None):
        """``x @ w.T + bias + residual``, x normalized or gated before; all in float32, rounded once.

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
        activations : {"f32", "int8", "int16"}
        out : ndarray (..., N) of x's dtype, optional
        threads : int, optional

        Returns
        -------
        ndarray (..., N) of x's dtype
        """
        return self._multiply(x, bias, _activations(activations, "PackedNBits"), out, threads, "PackedNBits", "x", norm, epsilon, swiglu, residual)

    def __repr__(self):
        return f"PackedNBits(N={self.w.n}, K={self.k}, bits={self.w.bits}, block_size={self.block_size}, nbytes={self.nbytes})"

    @property
    def bits(self):
        return self.w.bits

    @property
    def block_size(self):
        return self.w.block_size if self._groups is None else self._groups[1]

    @property
    def g_idx(self):
        """The block of each input, int32 (K,); None for weights without g_idx."""
        if self._order is None:
            return None
        g_idx, inside = np.empty(self.k, np.int32), self._order >= 0
        g_idx[self._order[inside]] = np.repeat(self._groups[0], self.w.block_size)[inside]
        return g_idx

    def unpack(self, *, threads=None):
        """The serialized form again: (b, scales, zero_points), zero_points None where they are the default.

        Scales come in the dtype in which they are kept, their values unchanged. With `g_idx` everything is where it was before packing; only
        the scales and zero points of blocks that no input uses have not been kept and come as zeros.
        """
        cdef int64_t blocks = (self.w.k + self.w.block_size - 1) // self.w.block_size
        cdef cnp.ndarray b = np.empty((self.w.n, blocks, self.w.block_size * self.w.bits // 8), np.uint8)
        cdef cnp.ndarray scales = np.empty((self.w.n, blocks), _arrays.numpy_dtype(self.w.scale_dtype)), z = None
        cdef int n_threads = _arrays.worth(_arrays.num_threads(threads, "PackedNBits.unpack"), self.w.n * self.w.k, GRAIN)
        if self.w.zp_kind == QK_ZP_U8:
            z = np.empty((self.w.n, (blocks * self.w.bits + 7) // 8), np.uint8)
        elif self.w.zp_kind == QK_ZP_F32:
            z = np.empty((self.w.n, blocks), np.float32)
        with nogil:
            qk_nbits_unpack(n_threads, &self.w, <uint8_t *>cnp.PyArray_DATA(b), cnp.PyArray_DATA(scales),
                            <uint8_t *>cnp.PyArray_DATA(z) if self.w.zp_kind == QK_ZP_U8 else NULL,
                            <float *>cnp.PyArray_DATA(z) if self.w.zp_kind == QK_ZP_F32 else NULL)
        return (b, scales, z) if self._order is None else self._in_order(b, scales, z)

    cdef tuple _in_order(self, object b, object scales, object zero_points):
        """Serialized blocks of inputs in the packed order, as those of inputs in their own."""
        cdef int bits = self.w.bits
        n, block_size, inside = self.w.n, self._groups[1], self._order >= 0
        blocks = -(-self.k // block_size)
        used, first = np.unique(self._groups[0], return_index=True)
        codes, narrow = _separate(b.reshape(n, -1), bits), np.zeros((n, blocks * block_size), np.uint8)
        narrow[:, self._order[inside]] = codes[:, :inside.size][:, inside]
        s = np.zeros((n, blocks), scales.dtype)
        s[:, used] = scales[:, first]
        z = None
        if zero_points is not None:
            z = np.zeros((n, blocks), zero_points.dtype)
            z[:, used] = (_separate(zero_points, bits) if self.w.zp_kind == QK_ZP_U8 else zero_points)[:, first]
            if self.w.zp_kind == QK_ZP_U8:
                z = _together(z, bits)
        return _together(narrow, bits).reshape(n, blocks, -1), s, z


cdef class PackedInt8Rows(PackedBlocks):
    """Weights in 8 bits with one scale for each output row, quantized symmetrically: ``w ≈ q * scale``, q in -127..127.

    Parameters
    ----------
    w : array (N, K), float32, float16 or bfloat16, or a sequence of up to 16 of them to stack along N
    threads : int, optional
        For quantizing.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> w = qkernels.PackedInt8Rows(np.float32([[127, 1], [0, 254]]))
    >>> w(np.float32([1, 10]))
    array([ 137., 2540.], dtype=float32)
    """

    def __init__(self, w, *, threads=None):
        self._quantize(w, 8, None, QK_SYMMETRIC_ABS, QK_ZP_DEFAULT, threads, "PackedInt8Rows")

    def __call__(self, x, *, bias=None, activations="f32", norm=None, epsilon=1e-5, swiglu=False, residual=None, out=None, threads=None):
        """``x @ w.T + bias + residual``; arguments as in `PackedNBits`."""
        return self._multiply(x, bias, _activations(activations, "PackedInt8Rows"), out, threads, "PackedInt8Rows", "x", norm, epsilon, swiglu,
                              residual)

    def __repr__(self):
        return f"PackedInt8Rows(N={self.w.n}, K={self.w.k}, nbytes={self.nbytes})"

    def unpack(self):
        """(codes int8 (N, K), scales (N,))."""
        tiles, scales, _ = self._buffers
        # (group, tile, vector, column, byte) to (column, k)
        codes = tiles.reshape(self.w.groups, self.w.k_tiles, 8, 16, 4).transpose(0, 3, 1, 2, 4).reshape(self.w.groups * 16, -1)
        return (codes[:self.w.n, :self.w.k].astype(np.int16) - 128).astype(np.int8), scales.reshape(-1)[:self.w.n].copy()


cdef int _check_form(object bits, object block_size, str func) except -1:
    if bits not in (2, 4, 8):
        raise ValueError(f"{func}: bits: expected 2, 4 or 8, got {bits}")
    if isinstance(block_size, bool) or not hasattr(block_size, "__index__"):
        raise TypeError(f"{func}: block_size: expected an int, got {type(block_size).__name__}")
    if block_size < 16 or block_size > 1 << 30 or block_size & (block_size - 1):
        raise ValueError(f"{func}: block_size: expected a power of two, at least 16, got {block_size}")
    return 0


cdef object _codes_dtype(object given, object bits, object dtype, str func):
    """The type of from_codes' codes, from their array or from what the caller says of bytes."""
    if dtype is not None:
        kind = np.dtype(dtype)
        if kind not in _CODES:
            raise TypeError(f"{func}: dtype: expected one of {', '.join([t.name for t in _CODES])}, got {dtype}")
    elif given != np.uint8 or bits is None:
        kind = given
    else:
        if bits not in (2, 4, 8):
            raise ValueError(f"{func}: bits: expected 2, 4 or 8, got {bits}")
        kind = np.dtype({2: ml_dtypes.uint2, 4: ml_dtypes.uint4, 8: np.uint8}[bits])
    if kind not in _CODES or given not in (kind, np.uint8):
        raise TypeError(f"{func}: codes: expected dtype {', '.join([t.name for t in _CODES]) if kind not in _CODES else kind}, got {given}")
    if bits is not None and bits != _CODES[kind][0]:
        raise ValueError(f"{func}: bits: expected {_CODES[kind][0]} for {kind}, got {bits}")
    return kind


cdef cnp.ndarray _flat_codes(cnp.ndarray a, object kind, int64_t count, tuple shape, str func, str name):
    """Codes, one in each byte (then `count` bytes), or serialized: contiguous and flat."""
    cdef int bits = _CODES[kind][0]
    given = _arrays.shape_of(a)
    if given == shape:
        flat = _arrays.contiguous(a)
        flat = (<object>flat).view(np.uint8).reshape(-1)
        if a.dtype != kind and bits < 8 and flat.size and flat.max() >> bits:
            raise ValueError(f"{func}: {name}: expected codes of {bits} bits, got {flat.max()}")
        return flat
    if bits == 8 or a.dtype != np.uint8 or a.ndim != 1 or a.size != (count * bits + 7) // 8:
        serialized = "" if bits == 8 else f" or {(count * bits + 7) // 8} uint8 bytes"
        raise ValueError(f"{func}: {name}: expected shape {shape}{serialized}, got {a.dtype} {given}")
    return _arrays.contiguous(a)


cdef object _separate(object packed, int bits):
    """(rows, bytes) of packed codes as one code in each byte."""
    codes = packed[:, :, None] >> np.arange(0, 8, bits, dtype=np.uint8) & np.uint8((1 << bits) - 1)
    return codes.reshape(packed.shape[0], packed.shape[1] * (8 // bits))


cdef object _together(object codes, int bits):
    """The reverse, each row padded to whole bytes."""
    cdef int per = 8 // bits
    parts = np.pad(codes, ((0, 0), (0, -codes.shape[1] % per)))
    parts = parts.reshape(codes.shape[0], parts.shape[1] // per, per)
    return np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=2)


cdef object _low_codes(cnp.ndarray flat, int stored_bits, int bits, int64_t count):
    """Unsigned codes of `bits` bits, one in each byte."""
    if stored_bits < 8:
        flat = ((<object>flat)[:, None] >> np.arange(0, 8, bits, dtype=np.uint8)).reshape(-1)[:count]
    return flat & np.uint8((1 << bits) - 1)


cdef tuple _order_of(object g_idx, int64_t k, int64_t blocks, int64_t block_size, str func):
    """Inputs sorted by block, padded to whole blocks: (order, block of each packed block, its size).

    Where padding to block_size would cost more than a quarter, blocks of 16 share the scales."""
    cdef cnp.ndarray g = _arrays.int_input(g_idx, func, "g_idx")
    if _arrays.shape_of(g) not in ((k,), (blocks * block_size,)):
        raise ValueError(f"{func}: g_idx: expected shape ({k},) or ({blocks * block_size},), got {_arrays.shape_of(g)}")
    group = (<object>g)[:k]
    if group.min() < 0 or group.max() >= blocks:
        raise ValueError(f"{func}: g_idx: expected 0 to {blocks - 1} for {blocks} blocks, got {group.min()} to {group.max()}")
    counts = np.bincount(group, minlength=blocks)
    if (-counts % block_size).sum() * 4 > k and block_size > 16:
        block_size = 16
    parts = -(-counts // block_size)
    order = np.full(parts.sum() * block_size, -1, np.int64)
    within = np.arange(k) - np.repeat(np.cumsum(counts) - counts, counts)
    order[np.repeat((np.cumsum(parts) - parts) * block_size, counts) + within] = np.argsort(group, kind="stable")
    return order, np.repeat(np.arange(blocks), parts), block_size


cdef cnp.ndarray _flat_or_rows(cnp.ndarray a, int64_t n, int64_t columns, str func, str name):
    if _arrays.shape_of(a) not in ((n, columns), (n * columns,)):
        raise ValueError(f"{func}: {name}: expected shape {(n, columns)} or {(n * columns,)}, got {_arrays.shape_of(a)}")
    return a


def quantize_nbits(w, *, bits=4, block_size=32, symmetric=True, threads=None):
    """Round weights to the nearest code of `bits` bits, with a scale for each block along K.

    Symmetric: the scale maps the block's value of largest magnitude to code 0, so that ``w ≈ (code - 2**(bits - 1)) * scale`` (on a tie of
    magnitudes the negative one). Asymmetric: smallest to largest, widened to contain 0, over all codes, with a zero point.

    Parameters
    ----------
    w : array (N, K), float32, float16 or bfloat16
        Finite.
    bits : {2, 4, 8}, default 4
    block_size : int, default 32
        A power of two, at least 16; the last block may be partial.
    symmetric : bool, default True
    threads : int, optional

    Returns
    -------
    b : ndarray uint8 (N, ceil(K / block_size), block_size * bits / 8)
    scales : ndarray (N, blocks)
        bfloat16 where that loses nothing (weights born in bfloat16), else float32.
    zero_points : ndarray uint8 (N, ceil(blocks * bits / 8)) or None
        None when symmetric.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> b, scales, zero_points = qkernels.quantize_nbits(np.float32([[-8, 7] * 8]), block_size=16)
    >>> b[0, 0, :2], scales.astype(float).tolist(), zero_points
    (array([240, 240], dtype=uint8), [[1.0]], None)
    """
    if isinstance(w, (list, tuple)):
        raise TypeError("quantize_nbits: w: expected an array, got a sequence; PackedNBits.quantize stacks several")
    return PackedNBits.quantize(w, bits=bits, block_size=block_size, symmetric=symmetric, threads=threads).unpack(threads=threads)


def matmul_nbits(a, b, scales, zero_points=None, g_idx=None, bias=None, *, K, N, block_size, bits=4, accuracy_level=0, weight_prepacked=0,
                 activations=None, out=None, threads=None):
    """``a @ dequantized(b).T + bias`` with block-quantized weights.

    com.microsoft MatMulNBits, since version 1. Packing plus running: for weights that stay, prepare them once with `PackedNBits`.

    Parameters
    ----------
    a : array (..., K), float32, float16 or bfloat16
    b, scales, zero_points
        As in `PackedNBits`. A `b` with a zero dimension is an omitted projection: the result is zeros, or the bias.
    g_idx : array of integers, optional
        As in `PackedNBits`; deprecated in the operator.
    bias : array (N,) of a's dtype, optional
    K, N, bits, block_size
        As in `PackedNBits`.
    accuracy_level : int, default 0
        0 unset, 1 float32, 2 float16, 3 bfloat16: activations enter in float32. 4: they may enter in int8, and do; the error is then up to
        max|a| / 254 per activation and block, so it is never chosen unasked.
    weight_prepacked : 0
        Only 0: layouts of other execution providers are refused.
    activations : {"f32", "int8", "int16"}, optional
        Overrides what accuracy_level says. Not an attribute of the operator.
    out : ndarray (..., N) of a's dtype, optional
    threads : int, optional

    Returns
    -------
    ndarray (..., N) of a's dtype

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was expected and what came.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> b = np.full((1, 1, 8), 0x99, np.uint8)  # codes 9, zero point 8
    >>> qkernels.matmul_nbits(np.ones((1, 16), np.float32), b, np.ones((1, 1), np.float32), K=16, N=1, block_size=16)
    array([[16.]], dtype=float32)
    """
    cdef str func = "matmul_nbits"
    cdef PackedNBits packed
    if weight_prepacked != 0:
        raise ValueError(f"{func}: weight_prepacked: expected 0, got {weight_prepacked}")
    if accuracy_level not in (0, 1, 2, 3, 4):
        raise ValueError(f"{func}: accuracy_level: expected 0 to 4, got {accuracy_level}")
    mode = _activations(("int8" if accuracy_level == 4 else "f32") if activations is None else activations, func)
    if isinstance(b, np.ndarray) and b.size == 0 and _dimension(N, func, "N", 0) and _dimension(K, func, "K", 0):
        return _omitted(a, b, bias, K, N, bits, block_size, out, func)
    packed = PackedNBits.__new__(PackedNBits)
    packed._once = True
    packed._pack(b, scales, zero_points, g_idx, K, N, bits, block_size, threads, func)
    return packed._multiply(a, bias, mode, out, threads, func, "a")


cdef object _omitted(object a, object b, object bias, object k, object n, object bits, object block_size, object out, str func):
    """A projection whose weights are an empty tensor: zeros or the bias."""
    cdef cnp.ndarray x = _arrays.float_input(a, _arrays.FLOATS, func, "a"), y
    cdef int code = _arrays.dtype_code(x)
    _check_form(bits, block_size, func)
    full = (n, (k + block_size - 1) // block_size, block_size * bits // 8)
    if b.ndim != 3 or any([got not in (0, want) for got, want in zip(b.shape, full)]):
        raise ValueError(f"{func}: b: expected shape {full}, or zeros in places of it for an omitted projection, got {b.shape}")
    if x.ndim == 0 or x.shape[x.ndim - 1] != k:
        raise ValueError(f"{func}: a: expected shape (..., {k}), got {_arrays.shape_of(x)}")
    y = _arrays.output(out, _arrays.shape_of(x)[:x.ndim - 1] + (n,), code, func)
    y[...] = 0
    if bias is not None:
        c = _arrays.same_float_input(bias, code, func, "bias")
        _arrays.check_shape(c, (n,), func, "bias")
        y[...] = c
    return y
