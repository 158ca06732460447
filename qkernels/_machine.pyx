"""What the machine can do at most, as loops that do nothing else; `qwen3 benchmark` and the asv benchmarks divide by it."""
cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t, uint8_t

from qkernels cimport _arrays, _runtime

import math
import time

import numpy as np

cnp.import_array()

_tiers = ("scalar", "avx2", "avx512", "amx")

cdef extern from "_machine/_machine.h" nogil:
    enum:
        QK_READ, QK_FMA, QK_DOT
        QK_READ_UNIT
    ctypedef struct qk_machine_args:
        const uint8_t *x
        int64_t units, ahead
        int past_caches
        int32_t *sink
    int qk_machine_macs(int isa, int op)
    void qk_machine(int isa, int threads, int op, const qk_machine_args *args)


cdef double _fastest(int op, cnp.ndarray x, int64_t units, int repeat, int threads, object clock):
    cdef cnp.ndarray sink = np.zeros(16 * threads, np.int32)
    cdef qk_machine_args args
    args.x, args.sink, args.units = <const uint8_t *>cnp.PyArray_DATA(x), <int32_t *>cnp.PyArray_DATA(sink), units
    best = math.inf
    for i in range(-1, repeat):  # the first warms up
        args.ahead, args.past_caches = ((0, 0), (512, 1), (4096, 0))[i % 3]
        begin = clock()
        with nogil:
            qk_machine(_runtime.isa(), threads, op, &args)
        seconds = clock() - begin
        if i >= 0:
            best = min(best, seconds)
    return best


def read_bandwidth(x, repeat=8, threads=None, clock=time.perf_counter):
    """Bytes per second of reading a buffer once, the fastest of some passes, without prefetching and with two ways of it in turn.

    Each thread reads its part in order, 64 bytes at a time, and keeps the bits that were set.

    Parameters
    ----------
    x : ndarray of uint8, C-contiguous
        Much larger than the last cache, and written to before: pages that never were are all the same one.
    repeat : int
    threads : int, optional
    clock : callable

    Returns
    -------
    float
    """
    cdef cnp.ndarray a = x
    cdef int n = _arrays.num_threads(threads, "read_bandwidth")
    if a.dtype != np.uint8 or not a.flags.c_contiguous or a.nbytes < QK_READ_UNIT * n:
        raise ValueError(f"read_bandwidth: x: expected at least {QK_READ_UNIT * n} contiguous bytes, got {a.dtype} of shape {_arrays.shape_of(a)}")
    units = a.nbytes // QK_READ_UNIT
    return units * QK_READ_UNIT / _fastest(QK_READ, a, units, repeat, n, clock)


def peak_macs(kind, rounds=2_000_000, repeat=5, threads=None, clock=time.perf_counter):
    """Multiply-accumulates per second out of registers, the fastest of some passes, with the instructions of the tier in use.

    Parameters
    ----------
    kind : {"fma", "dot"}
        float32, or bytes into integers as quantized products use them.
    rounds : int
        Length of a pass.
    repeat : int
    threads : int, optional
    clock : callable

    Returns
    -------
    float
    """
    cdef int n = _arrays.num_threads(threads, "peak_macs"), op
    if kind not in ("fma", "dot"):
        raise ValueError(f"peak_macs: kind: expected fma or dot, got {kind!r}")
    op = QK_FMA if kind == "fma" else QK_DOT
    x = np.ones(64, np.uint8) if kind == "dot" else np.full(16, 1e-3, np.float32).view(np.uint8)
    return n * rounds * qk_machine_macs(_runtime.isa(), op) / _fastest(op, x, rounds, repeat, n, clock)
