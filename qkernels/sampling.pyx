"""The choice of a token: ai.onnx ArgMax, and sampling in the order of Hugging Face's logits processors."""
cimport cython
cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t, uint64_t

from qkernels cimport _arrays, _runtime

import numpy as np

cnp.import_array()

cdef extern from "sampling/sampling.h" nogil:
    ctypedef struct qk_argmax_args:
        const void *x
        int64_t *y
        int dtype, select_last
        int64_t rows, n
    ctypedef struct qk_sample_args:
        const void *logits
        const int64_t *previous
        int dtype, greedy
        int64_t n, n_previous, top_k
        float penalty, temperature
        double top_p, min_p
        uint64_t random
        float *x
        float *e
        int32_t *id
        float *chunk_max
        uint64_t *chunk_sum
        int64_t at, token, count
        int identity
        float scale
        uint64_t total
    int QK_CHUNK, QK_SAMPLE_NAN, QK_SAMPLE_NO_FINITE, QK_SAMPLE_BAD_ID
    void qk_argmax(int isa, int threads, const qk_argmax_args *args)
    int qk_sample(int isa, int threads, qk_sample_args *args)
    uint64_t qk_random(uint64_t seed, uint64_t step)
    uint64_t qk_draw_target(uint64_t random, uint64_t total)

cdef enum:
    GRAIN = 1 << 17  # elements for which starting a second thread pays: a scan reads 20 GB/s and more

cdef float FLT_MIN = 1.17549435e-38


def argmax(x, *, axis=0, keepdims=1, select_last_index=0, threads=None):
    """Index of the largest element along an axis.

    ONNX ai.onnx ArgMax, since version 13. Where several are largest, the first; a NaN is larger than everything, as in NumPy.

    Parameters
    ----------
    x : array, float32, float16, bfloat16, float64 or any integer type
        At least one dimension, any strides. The last axis is the fast one; others are moved there first. float64 and integers go through NumPy.
    axis : int, default 0
    keepdims : int, default 1
        Keep the axis with size 1 (1) or drop it (0).
    select_last_index : int, default 0
        1: where several are largest, the last (and the last NaN).
    threads : int, optional

    Returns
    -------
    ndarray
        int64, x's shape with the axis 1 or gone.

    Raises
    ------
    TypeError
        For a dtype.
    ValueError
        For an axis, or one of size 0.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> qkernels.argmax(np.float32([[5, 5, 3], [1, np.nan, 7]]), axis=-1)
    array([[0],
           [1]])
    """
    cdef cnp.ndarray a = _arrays.as_array(x, "argmax", "x"), y
    cdef qk_argmax_args args
    cdef tuple shape = _arrays.shape_of(a)
    cdef int n, at, rank = len(shape)
    if not shape:
        raise ValueError("argmax: x: expected at least 1 dimension, got a 0-d array")
    at = _arrays.normalize_axis(axis, rank, "argmax")
    if at != rank - 1:
        a = a.transpose([i for i in range(rank) if i != at] + [at])
    through_numpy = _arrays.dtype_code(a) < 0 and (a.dtype.kind in "iu" or a.dtype == np.float64)
    if not through_numpy:
        a = _arrays.float_input(a, _arrays.FLOATS, "argmax", "x")
    args.n = shape[at]
    if args.n == 0:
        raise ValueError(f"argmax: x: expected at least 1 element along axis {at}, got shape {shape}")
    if through_numpy:
        _arrays.num_threads(threads, "argmax")
        y = np.asarray(args.n - 1 - (<object>a)[..., ::-1].argmax(-1) if select_last_index else (<object>a).argmax(-1))
        return np.expand_dims(y, at) if keepdims else y
    y = np.empty(shape[:at] + ((1,) if keepdims else ()) + shape[at + 1:], np.int64)
    args.x, args.y, args.rows = cnp.PyArray_DATA(a), <int64_t *>cnp.PyArray_DATA(y), y.size
    args.dtype, args.select_last = _arrays.dtype_code(a), bool(select_last_index)
    n = _arrays.worth(_arrays.num_threads(threads, "argmax"), args.rows * args.n, GRAIN)
    if args.rows:
        if n > args.rows:
            n = <int>args.rows
        with nogil:
            qk_argmax(_runtime.isa(), n, &args)
    return y


cdef double _real(object value, str name, double low, double high) except? -1:
    """A number of [low, high]; NaN is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"sample: {name}: expected a number, got {type(value).__name__}")
    if not low <= value <= high:
        raise ValueError(f"sample: {name}: expected {low:g} to {high:g}, got {value}")
    return value


cdef uint64_t _counter(object value, str name) except? 0:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"sample: {name}: expected an int, got {type(value).__name__}")
    if not 0 <= value < 1 << 64:
        raise ValueError(f"sample: {name}: expected 0 to 2**64 - 1, got {value}")
    return value


@cython.final
cdef class _Sampling:
    """One call: its settings, scratch and results."""

    cdef qk_sample_args args
    cdef cnp.ndarray logits, previous, x, e, id, chunk_max, chunk_sum
    cdef int threads

    def __init__(self, logits, temperature, top_k, top_p, min_p, repetition_penalty, previous, threads):
        cdef qk_sample_args *a = &self.args
        cdef cnp.npy_intp n, chunks
        cdef double warmth
        self.logits = _arrays.float_input(logits, _arrays.FLOATS, "sample", "logits")
        if self.logits.ndim != 1 or not 0 < self.logits.size < 1 << 31:
            raise ValueError(f"sample: logits: expected shape (vocabulary,), got {_arrays.shape_of(self.logits)}")
        a.n = n = self.logits.size
        a.logits, a.dtype = cnp.PyArray_DATA(self.logits), _arrays.dtype_code(self.logits)

        warmth = _real(temperature, "temperature", 0, 3.4028234663852886e38)
        a.temperature, a.top_p, a.min_p = <float>warmth, _real(top_p, "top_p", 0, 1), _real(min_p, "min_p", 0, 1)
        if top_k is None:
            top_k = 0
        if isinstance(top_k, bool) or not isinstance(top_k, (int, np.integer)):
            raise TypeError(f"sample: top_k: expected an int or None, got {type(top_k).__name__}")
        if top_k < 0:
            raise ValueError(f"sample: top_k: expected 0 or more, got {top_k}")
        a.top_k = min(top_k, n) or n
        a.penalty = <float>_real(repetition_penalty, "repetition_penalty", 0, 3.4028234663852886e38)
        if not a.penalty > 0:
            raise ValueError(f"sample: repetition_penalty: expected a number > 0, got {repetition_penalty}")
        a.greedy = a.temperature < FLT_MIN or top_k == 1 or a.top_p == 0 or a.min_p == 1

        a.previous, a.n_previous = NULL, 0
        if previous is not None and len(previous):
            self.previous = _arrays.int_input(previous, "sample", "previous")
            if self.previous.ndim != 1:
                raise ValueError(f"sample: previous: expected 1 dimension, got shape {_arrays.shape_of(self.previous)}")
            a.previous, a.n_previous = <int64_t *>cnp.PyArray_DATA(self.previous), self.previous.size

        # n weights of at most 2^46 stay below 2^63
        a.scale = 2.0 ** min(46, 62 - int(n).bit_length())
        chunks = (n + QK_CHUNK - 1) // QK_CHUNK
        self.x, self.e, self.id = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.int32)
        self.chunk_max, self.chunk_sum = np.empty(chunks, np.float32), np.empty(chunks, np.uint64)
        a.x, a.e, a.id = <float *>cnp.PyArray_DATA(self.x), <float *>cnp.PyArray_DATA(self.e), <int32_t *>cnp.PyArray_DATA(self.id)
        a.chunk_max, a.chunk_sum = <float *>cnp.PyArray_DATA(self.chunk_max), <uint64_t *>cnp.PyArray_DATA(self.chunk_sum)
        self.threads = _arrays.worth(_arrays.num_threads(threads, "sample"), n, GRAIN)

    cdef int64_t run(self, uint64_t random) except -1:
        cdef int status
        self.args.random = random
        with nogil:
            status = qk_sample(_runtime.isa(), self.threads, &self.args)
        if status == QK_SAMPLE_NAN:
            raise ValueError(f"sample: logits: NaN at index {self.args.at}")
        if status == QK_SAMPLE_NO_FINITE:
            raise ValueError(f"sample: logits: all {self.args.n} are -inf, no token is possible")
        if status == QK_SAMPLE_BAD_ID:
            raise IndexError(f"sample: previous: expected ids of 0 to {self.args.n - 1}, got {self.previous[self.args.at]} at {self.args.at}")
        return self.args.token

    cdef tuple candidates(self):
        """ids and weights, in the order of the draw; only what can be drawn."""
        cdef cnp.npy_intp count = self.args.count
        w = (self.e[:count] * np.float32(self.args.scale)).astype(np.uint64)
        possible = np.flatnonzero(w)
        ids = possible if self.args.identity else self.id[:count][possible]
        return ids.astype(np.int64, copy=False), w[possible]


def sample(logits, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, previous=None, seed=0, step=0, threads=None):
    """Choose the next token from a row of logits.

    No ONNX operator. The order is that of Hugging Face's generation: repetition penalty, temperature, top-k, top-p, min-p, then a draw
    from what remains. The choice depends on the arguments alone, not on the machine, the number of threads or what was drawn before.

    Parameters
    ----------
    logits : array, float32, float16 or bfloat16, (vocabulary,)
        Not modified; scaled in float32. -inf is an impossible token, +inf a certain one.
    temperature : float, default 1.0
        Divides the logits. 0, or less than float32 can hold, takes the largest logit.
    top_k : int or None, default 0
        Keep the k largest logits, and those equal to the k-th. 0 or None: all. 1 takes the largest.
    top_p : float, default 1.0
        Keep the fewest tokens, most probable first, whose probabilities sum to `top_p` or more. 0 takes the largest.
    min_p : float, default 0.0
        Keep tokens at least `min_p` times as probable as the most probable. 1 takes the largest.
    repetition_penalty : float, default 1.0
        Divides the positive logits of `previous` ids and multiplies their negative ones, once for each id.
    previous : array of int, optional
        Ids that the penalty applies to: prompt and what was generated.
    seed, step : int, default 0
        0 to 2**64 - 1. The draw is number `step` of the stream `seed`.
    threads : int, optional

    Returns
    -------
    int
        Where several logits are largest and the largest is taken, the lowest index; so ties at the edge of top-p are kept.

    Raises
    ------
    TypeError
        For a dtype or the type of a setting.
    ValueError
        For a shape or a setting; where a logit is NaN, or all are -inf.
    IndexError
        For a previous id outside the vocabulary.

    Notes
    -----
    The random number is the first 64 bits of Philox4x32-10 with key `seed` and counter `step`. A token weighs
    ``trunc(exp((x - max) / temperature) * 2**46)`` (a smaller power for a vocabulary above 65,535), and the draw inverts the cumulative
    weights in the order of the ids: whole numbers, so nothing depends on an order of summation. Tokens 2**-44 times as probable as the best
    one have weight 0 at a vocabulary of 151,936.

    Examples
    --------
    >>> import numpy as np, qkernels
    >>> logits = np.float32([1, 3, 2.5, -1])
    >>> qkernels.sample(logits, temperature=0)
    1
    >>> [qkernels.sample(logits, temperature=0.6, top_k=20, top_p=0.95, seed=7, step=i) for i in range(8)]
    [2, 2, 1, 1, 2, 1, 1, 1]
    """
    cdef uint64_t random = qk_random(_counter(seed, "seed"), _counter(step, "step"))
    return _Sampling(logits, temperature, top_k, top_p, min_p, repetition_penalty, previous, threads).run(random)


def candidates(logits, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, previous=None, threads=None):
    """What `qkernels.sample` draws from: the tokens that remain, and their probabilities.

    Parameters
    ----------
    logits, temperature, top_k, top_p, min_p, repetition_penalty, previous, threads
        As in `qkernels.sample`.

    Returns
    -------
    ids : ndarray of int64
        Ascending.
    probabilities : ndarray of float64

    Examples
    --------
    >>> import numpy as np
    >>> from qkernels.sampling import candidates
    >>> ids, probabilities = candidates(np.float32([0, 2, 2, -1]), top_k=2)
    >>> ids, probabilities
    (array([1, 2]), array([0.5, 0.5]))
    """
    ids, w = _weights(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty,
                      previous=previous, threads=threads)
    return ids, w / np.float64(w.sum())


def _weights(logits, *, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, previous=None, threads=None):
    """The candidates' ids and whole-number weights, for the tests."""
    cdef _Sampling s = _Sampling(logits, temperature, top_k, top_p, min_p, repetition_penalty, previous, threads)
    s.run(0)
    return s.candidates()


def _sample_at(logits, random, **settings):
    """`sample` with the 64 random bits given, for the tests."""
    defaults = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, previous=None, threads=None) | settings
    return _Sampling(logits, **defaults).run(_counter(random, "random"))


def _random(seed, step):
    """The 64 bits that `sample` uses."""
    return qk_random(_counter(seed, "seed"), _counter(step, "step"))


def _draw_target(random, total):
    """floor(random / 2**64 * total)"""
    return qk_draw_target(random, total)
