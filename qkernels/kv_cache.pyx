"""The key and value cache of a decoder."""
cimport numpy as cnp
from cpython.pythread cimport (
    NOWAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from qkernels cimport _arrays

import math

import numpy as np

cnp.import_array()

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef extern from "attention/attention.h" nogil:
    enum:
        QK_CACHE_I8

cdef enum:
    FIRST_CAPACITY = 64
    HUGE_PAGE = 1 << 21


cdef object _size(object value, int64_t least, str what):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"KVCache: {what}: expected an int, got {type(value).__name__}")
    value = value.__index__()
    if not least <= value < 2**31:
        raise ValueError(f"KVCache: {what}: expected {least} to {2**31 - 1}, got {value}")
    return value


cdef object _buffers(tuple shape, object dtype):
    """Keys and values of a layer in one piece of memory whose untouched pages are not committed. Small ones share regions; large ones start at a
    huge page, which NumPy asks the system for, since a step reads everything and the page walks would cost a fifth of it."""
    cdef int64_t count, half, start
    count = math.prod(shape)
    half = (count * dtype.itemsize + 63) // 64 * 64
    if 2 * half < 2 * HUGE_PAGE:
        whole = _arrays.cache_empty((2 * half,), np.uint8)
    else:
        raw = np.empty(2 * half + HUGE_PAGE, np.uint8)
        start = -(<int64_t>cnp.PyArray_DATA(raw)) & (HUGE_PAGE - 1)
        whole = raw[start:start + 2 * half]
    pair = whole.view(dtype).reshape(2, -1)
    return pair[0, :count].reshape(shape), pair[1, :count].reshape(shape)


def _codes(x):
    """(codes, scales) of rows along the last axis, the bits that attention's own append makes."""
    largest = np.max(np.where(np.isnan(x), np.float32(np.inf), np.abs(x)), -1, initial=0)
    scale = largest / np.float32(127)
    good = (scale > 0) & (largest < np.inf)
    codes = np.where(good[..., None], np.clip(np.rint(x / np.where(good, scale, 1)[..., None]), -127, 127), 0)
    return codes.astype(np.int8), np.where(good, scale, np.where(largest < np.inf, 0, np.nan)).astype(np.float32)


cdef class KVCache:
    """Keys and values of the tokens that a decoder has seen, contiguous per layer, in float32, float16, bfloat16 or int8.

    A step appends to every layer (`append`, or `cached_attention`, which appends as it computes) and ends in `advance`. Until then the new
    tokens lie behind `length` and can be written again, so a step that failed half way leaves the cache as it was. Memory grows
    geometrically: the cost of an append is proportional to the new tokens.

    One cache belongs to one thread at a time; a second call while one is running raises RuntimeError.

    Parameters
    ----------
    layers, kv_heads, head_size : int
    capacity : int, default 0
        Tokens to reserve room for at once. The system commits pages as they are written, of a large cache 2 MiB at a time.
    max_length : int, optional
        Most tokens; ValueError beyond.
    dtype : float32, float16, bfloat16 or int8, default float32
        Keys and values are rounded to it once. As int8 each token's head has a scale, its largest absolute value / 127; a value is its code times
        that. What is not finite makes the scale NaN. Attention over it multiplies integers: for heads up to 512 a row of q, and of probabilities
        in each 256 keys, becomes codes of 16 bits with a scale of its own.
    batch : int, default 1
        Sequences of equal length.

    Attributes
    ----------
    length : int
        Committed tokens.
    capacity : int
        Tokens that fit before the next growth.
    nbytes : int
        Bytes reserved for keys, values and scales.
    layers, kv_heads, head_size, batch, max_length, dtype
        As given.

    Raises
    ------
    TypeError, ValueError

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> cache = qkernels.KVCache(layers=1, kv_heads=2, head_size=4, dtype=np.float16)
    >>> cache.append(0, np.ones((3, 2, 4), np.float32), np.zeros((3, 2, 4), np.float32))
    >>> cache.advance(3)
    >>> cache.length, cache.keys(0).shape
    (3, (1, 2, 3, 4))
    """

    def __cinit__(self, layers, kv_heads, head_size, *, capacity=0, max_length=None, dtype=np.float32, batch=1):
        self.layers, self.kv_heads = _size(layers, 1, "layers"), _size(kv_heads, 1, "kv_heads")
        self.head_size, self.batch = _size(head_size, 1, "head_size"), _size(batch, 1, "batch")
        self.max_length = None if max_length is None else _size(max_length, 1, "max_length")
        self.dtype = np.dtype(dtype)
        self.code = QK_CACHE_I8 if self.dtype == np.int8 else _arrays.dtype_code(np.empty(0, self.dtype))
        if self.code < 0 or not self.dtype.isnative:
            raise TypeError(f"KVCache: dtype: expected {_arrays.names_of(_arrays.FLOATS)} or int8, got {self.dtype}")
        capacity = _size(capacity, 0, "capacity")
        if max_length is not None and capacity > max_length:
            raise ValueError(f"KVCache: capacity: {capacity} exceeds max_length {max_length}")
        self.busy = <void *>PyThread_allocate_lock()
        self.keys_data, self.values_data = <char **>calloc(self.layers, sizeof(char *)), <char **>calloc(self.layers, sizeof(char *))
        self.key_scales, self.value_scales = <float **>calloc(self.layers, sizeof(float *)), <float **>calloc(self.layers, sizeof(float *))
        self.pending, self.room = <int64_t *>calloc(self.layers, sizeof(int64_t)), <int64_t *>calloc(self.layers, sizeof(int64_t))
        if not (self.busy and self.keys_data and self.values_data and self.key_scales and self.value_scales and self.pending and self.room):
            raise MemoryError
        self.buffers, self.scales = [None] * self.layers, [None] * self.layers
        self._grow(capacity)

    def __dealloc__(self):
        if self.busy:
            PyThread_free_lock(<PyThread_type_lock>self.busy)
        free(self.keys_data)
        free(self.values_data)
        free(self.key_scales)
        free(self.value_scales)
        free(self.pending)
        free(self.room)
        free(self.scratch)

    def __repr__(self):
        return (f"KVCache(layers={self.layers}, kv_heads={self.kv_heads}, head_size={self.head_size}, batch={self.batch}, dtype={self.dtype}, "
                f"length={self.length}, capacity={self.capacity}, max_length={self.max_length})")

    cdef int enter(self, str func) except -1:
        if not PyThread_acquire_lock(<PyThread_type_lock>self.busy, NOWAIT_LOCK):
            raise RuntimeError(f"{func}: cache: in use by another call; a cache belongs to one thread at a time")
        return 0

    cdef int leave(self) except -1:
        PyThread_release_lock(<PyThread_type_lock>self.busy)
        return 0

    cdef int check_layer(self, object layer, str func) except -1:
        if type(layer) is not int:
            if isinstance(layer, bool) or not hasattr(layer, "__index__"):
                raise TypeError(f"{func}: layer: expected an int, got {type(layer).__name__}")
            layer = layer.__index__()
        if not 0 <= layer < self.layers:
            raise IndexError(f"{func}: layer: expected 0 to {self.layers - 1}, got {layer}")
        return layer

    def _grow(self, int64_t capacity):
        """Move every layer to buffers of a new capacity, with what is committed or pending; one after another, so that no more than one
        layer is held twice. Where memory runs out half way, each layer knows its own room."""
        cdef int64_t used
        cdef int i
        shape = (self.batch, self.kv_heads, capacity, self.head_size)
        for i in range(self.layers):
            pair = _buffers(shape, self.dtype)
            used = self.length + self.pending[i]
            if used:
                for new, old in zip(pair, self.buffers[i]):
                    new[:, :, :used] = old[:, :, :used]
            if self.code == QK_CACHE_I8:
                scales = _buffers(shape[:3], np.dtype(np.float32))
                if used:
                    for new, old in zip(scales, self.scales[i]):
                        new[:, :, :used] = old[:, :, :used]
                self.scales[i] = scales
                self.key_scales[i], self.value_scales[i] = <float *>cnp.PyArray_DATA(scales[0]), <float *>cnp.PyArray_DATA(scales[1])
            self.buffers[i] = pair
            self.keys_data[i], self.values_data[i] = <char *>cnp.PyArray_DATA(pair[0]), <char *>cnp.PyArray_DATA(pair[1])
            self.room[i] = capacity
        self.capacity = capacity

    cdef int reserve(self, int64_t needed, str func) except -1:
        """Room for `needed` tokens in every layer."""
        cdef int64_t capacity
        if needed <= self.capacity:
            return 0
        if self.max_length is not None and needed > self.max_length:
            raise ValueError(f"{func}: cache: length {self.length} + {needed - self.length} new tokens exceeds max_length {self.max_length}")
        capacity = max(needed, 2 * self.capacity, FIRST_CAPACITY)
        capacity = (capacity + 63) // 64 * 64
        self._grow(capacity if self.max_length is None else min(capacity, self.max_length))
        return 0

    cdef float *working_memory(self, int64_t floats) except NULL:
        if floats > self.scratch_size:
            free(self.scratch)
            self.scratch_size = 0
            floats = (floats + 1023) // 1024 * 1024
            self.scratch = <float *>aligned_alloc(64, 4 * floats)
            if not self.scratch:
                raise MemoryError
            self.scratch_size = floats
        return self.scratch

    @property
    def nbytes(self):
        return 2 * self.layers * self.batch * self.kv_heads * self.capacity * (self.head_size * self.dtype.itemsize + (4 if self.code == QK_CACHE_I8 else 0))

    def _new(self, x, str arg):
        """Keys or values to append as (batch, kv_heads, n, head_size)."""
        cdef cnp.ndarray a = _arrays.as_array(x, "KVCache.append", arg)
        if _arrays.dtype_code(a) < 0 or _arrays.dtype_code(a) not in (_arrays.F32, self.code):
            raise TypeError(f"KVCache.append: {arg}: expected dtype {_arrays.names_of(_arrays.F32_ONLY | (1 << self.code) & _arrays.FLOATS)}, got {a.dtype}")
        if a.ndim == 3 and self.batch == 1 and (<object>a).shape[1:] == (self.kv_heads, self.head_size):
            return (<object>a).transpose(1, 0, 2)[None]
        if a.ndim != 4 or (<object>a).shape[:2] != (self.batch, self.kv_heads) or (<object>a).shape[3] != self.head_size:
            flat = f"(n, {self.kv_heads}, {self.head_size}) or " if self.batch == 1 else ""
            raise ValueError(f"KVCache.append: {arg}: expected shape {flat}({self.batch}, {self.kv_heads}, n, {self.head_size}), "
                             f"got {_arrays.shape_of(a)}")
        return a

    def append(self, layer, k, v):
        """Write keys and values of new tokens behind the committed ones of a layer; `advance` commits them for all layers.

        Parameters
        ----------
        layer : int
        k, v : array, float32 or the cache's float dtype
            (n, kv_heads, head_size) where batch is 1, or (batch, kv_heads, n, head_size). Any strides.

        Raises
        ------
        IndexError
            For a layer.
        TypeError, ValueError
            For a dtype or a shape; ValueError beyond max_length, naming both numbers.
        """
        cdef int i = self.check_layer(layer, "KVCache.append")
        k, v = self._new(k, "k"), self._new(v, "v")
        if k.shape != v.shape:
            raise ValueError(f"KVCache.append: v: expected as many tokens as k, {k.shape[2]}, got {v.shape[2]}")
        cdef int64_t n = k.shape[2]
        self.enter("KVCache.append")
        try:
            self.reserve(self.length + n, "KVCache.append")
            with np.errstate(all="ignore"):
                for which, x in enumerate((k, v)):
                    if self.code == QK_CACHE_I8:
                        x, self.scales[i][which][:, :, self.length:self.length + n] = _codes(x)
                    self.buffers[i][which][:, :, self.length:self.length + n] = x
            self.pending[i] = n
        finally:
            self.leave()

    def advance(self, n):
        """Commit n new tokens, which every layer must have got since the last commit.

        Raises
        ------
        ValueError
            Where a layer has got another number, naming the layer and both numbers; nothing is committed then.
        """
        cdef int64_t count = _size(n, 0, "advance: n")
        cdef int i
        self.enter("KVCache.advance")
        try:
            for i in range(self.layers):
                if self.pending[i] != count:
                    raise ValueError(f"KVCache.advance: n: layer {i} has {self.pending[i]} new tokens, got {n}")
            for i in range(self.layers):
                self.pending[i] = 0
            self.length += count
        finally:
            self.leave()

    def truncate(self, n):
        """Forget all but the first n tokens, and what is not committed. Memory is kept.

        Raises
        ------
        ValueError
            Where n is not within 0 and length.
        """
        cdef int64_t count = _size(n, 0, "truncate: n")
        cdef int i
        self.enter("KVCache.truncate")
        try:
            if count > self.length:
                raise ValueError(f"KVCache.truncate: n: expected 0 to length {self.length}, got {n}")
            for i in range(self.layers):
                self.pending[i] = 0
            self.length = count
        finally:
            self.leave()

    def reset(self):
        """Forget everything; memory is kept."""
        self.truncate(0)

    def _view(self, layer, int which, str func):
        view = self.buffers[self.check_layer(layer, func)][which][:, :, :self.length]
        view.flags.writeable = False
        return view

    def keys(self, layer):
        """The committed keys of a layer, read-only, without a copy: (batch, kv_heads, length, head_size).

        The view shows this cache's memory until the next growth and keeps the old memory alive after it; `truncate` and later appends
        change what it shows.

        Raises
        ------
        IndexError
            For a layer.
        """
        return self._view(layer, 0, "KVCache.keys")

    def values(self, layer):
        """The committed values of a layer, as `keys`."""
        return self._view(layer, 1, "KVCache.values")

    def token_scales(self, layer):
        """The scales of a layer's committed keys and of its values in an int8 cache, read-only: two arrays (batch, kv_heads, length).

        Raises
        ------
        IndexError
            For a layer.
        TypeError
            Where the cache is not int8.
        """
        cdef int i = self.check_layer(layer, "KVCache.token_scales")
        if self.code != QK_CACHE_I8:
            raise TypeError(f"KVCache.token_scales: expected a cache of int8, this one is {self.dtype}")
        views = [scales[:, :, :self.length] for scales in self.scales[i]]
        for view in views:
            view.flags.writeable = False
        return tuple(views)
