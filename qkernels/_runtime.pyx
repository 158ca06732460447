"""The only mutable state of qkernels: the instruction-set tier and the number of threads."""
import contextlib
import operator
import os
import warnings

from qkernels._cpu_count import available_threads

cdef extern from "_runtime/cpu.h" nogil:
    unsigned qk_cpu_features()
    int qk_best_isa(unsigned features)
    int qk_openmp_max_threads()
    int qk_openmp_version()
    void qk_watch_forks()
    int qk_is_forked()
    const char *qk_compiler()
    int QK_HAS_SSE42, QK_HAS_AVX2, QK_HAS_FMA, QK_HAS_F16C, QK_HAS_AVX512, QK_HAS_AVX512_VNNI, QK_HAS_AVX512_BF16, QK_HAS_AVX_VNNI, QK_HAS_AMX_INT8

ISA_TIERS = ("scalar", "avx2", "avx512", "amx")
TIERS_OF_ALL = ISA_TIERS[:3]  # of families that do not say which they have bodies for
_FEATURES = {"sse4.2": QK_HAS_SSE42, "avx2": QK_HAS_AVX2, "fma": QK_HAS_FMA, "f16c": QK_HAS_F16C, "avx512f/bw/dq/vl": QK_HAS_AVX512,
             "avx512_vnni": QK_HAS_AVX512_VNNI, "avx512_bf16": QK_HAS_AVX512_BF16, "avx_vnni": QK_HAS_AVX_VNNI,
             "amx_int8": QK_HAS_AMX_INT8}

cdef int _best = qk_best_isa(qk_cpu_features())  # QKERNELS_ISA lowers it
cdef int _isa
cdef int _threads
cdef bint _threads_explicit
qk_watch_forks()


cdef int isa() noexcept nogil:
    return _isa


cdef int threads(int requested) noexcept nogil:
    """Threads for one call: the caller's number, else the process's within OpenMP's own limit; 1 in a forked child."""
    cdef int limit
    if qk_is_forked():
        return 1
    if requested > 0:
        return requested
    if _threads_explicit or _threads == 1:
        return _threads
    limit = qk_openmp_max_threads()
    return limit if limit < _threads else _threads


def _positive(value, what):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}: expected an int, got {type(value).__name__}")
    value = operator.index(value)
    if not 1 <= value <= 1024:
        raise ValueError(f"{what}: expected 1 to 1024 threads, got {value}")
    return value


def set_num_threads(n):
    """Set how many threads kernels use when a call does not say.

    Parameters
    ----------
    n : int or None
        1 to 1024. None returns to the default: QKERNELS_NUM_THREADS, else OMP_NUM_THREADS, else the physical cores that the
        process may use within its CPU quota; threadpoolctl's limits on OpenMP lower that default.

    Examples
    --------
    >>> import qkernels
    >>> qkernels.set_num_threads(1)
    >>> qkernels.get_num_threads()
    1
    >>> qkernels.set_num_threads(None)
    """
    global _threads, _threads_explicit
    if n is None:
        _threads, _threads_explicit = _default_threads()
    else:
        _threads, _threads_explicit = _positive(n, "set_num_threads: n"), True


def get_num_threads():
    """Threads that a call without ``threads=`` uses now."""
    return threads(0)


def get_isa():
    """Name of the instruction-set tier in use: "scalar", "avx2", "avx512" or "amx"."""
    return ISA_TIERS[_isa]


def available_isa():
    """Names of the tiers that this CPU and operating system can run, up to QKERNELS_ISA, lowest first."""
    return ISA_TIERS[:_best + 1]


@contextlib.contextmanager
def use_isa(name):
    """Context manager: run kernels on the tier `name`. Results are the same bits on every tier; only the speed differs.

    The choice is the process's, not the thread's.

    Parameters
    ----------
    name : {"scalar", "avx2", "avx512", "amx"}

    Raises
    ------
    ValueError
        For an unknown name, or a tier beyond this CPU or QKERNELS_ISA.

    Examples
    --------
    >>> import qkernels
    >>> with qkernels.use_isa("scalar"):
    ...     qkernels.get_isa()
    'scalar'
    """
    global _isa
    if name not in ISA_TIERS:
        raise ValueError(f"use_isa: name: expected one of {', '.join(ISA_TIERS)}, got {name!r}")
    if ISA_TIERS.index(name) > _best:
        raise ValueError(f"use_isa: name: available are {', '.join(available_isa())}, got {name!r}")
    before, _isa = _isa, ISA_TIERS.index(name)
    try:
        yield
    finally:
        _isa = before


def _default_threads():
    """The default, and whether the user chose it."""
    for variable in ("QKERNELS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(variable, "").split(",")[0].strip()
        if text:
            if text.isascii() and text.isdigit() and 1 <= int(text) <= 1024:
                return int(text), variable == "QKERNELS_NUM_THREADS"
            if variable == "QKERNELS_NUM_THREADS":
                raise ImportError(f"QKERNELS_NUM_THREADS: expected 1 to 1024, got {text!r}")
    return available_threads(), False


def _ceiling(name, best):
    """The index of the highest tier where QKERNELS_ISA is `name` and the machine allows tier `best`."""
    name = name.strip().lower()
    if not name:
        return best
    if name not in ISA_TIERS:
        raise ImportError(f"QKERNELS_ISA: expected one of {', '.join(ISA_TIERS)}, got {name!r}")
    if ISA_TIERS.index(name) > best:
        warnings.warn(f"QKERNELS_ISA={name} is beyond this CPU, using {ISA_TIERS[best]}", RuntimeWarning, stacklevel=2)
    return min(ISA_TIERS.index(name), best)


def describe():
    """The configuration as a dictionary: compiler, OpenMP, CPU features, tiers and threads."""
    features = qk_cpu_features()
    return {"compiler": qk_compiler().decode().strip(), "openmp": qk_openmp_version(),
            "cpu_features": [name for name, bit in _FEATURES.items() if features & bit], "isa": get_isa(), "isa_available": list(available_isa()),
            "threads": get_num_threads(), "threads_available": available_threads(), "forked": bool(qk_is_forked())}


_isa = _best = _ceiling(os.environ.get("QKERNELS_ISA", ""), _best)
_threads, _threads_explicit = _default_threads()
