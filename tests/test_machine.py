"""The machine's limits: that the loops are counted right. What they reach is no matter of a test."""
import itertools

import numpy as np
import pytest

import qkernels
from qkernels import _machine


def ticking(seconds):
    """A clock on which every call takes the next of `seconds`."""
    times = itertools.accumulate(itertools.chain.from_iterable((0.0, s) for s in seconds))
    return lambda: next(times)


@pytest.mark.parametrize("isa", qkernels.available_isa())
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bytes_and_operations_per_second(isa, threads):
    """The warm-up is fastest and does not count, the second pass is the fastest that does."""
    with qkernels.use_isa(isa):
        read = _machine.read_bandwidth(np.ones(4096 + 77, np.uint8), repeat=3, threads=threads, clock=ticking([0.5, 4, 2, 8]))
        assert read == 4096 / 2
        sums = {"scalar": 2, "avx2": 4, "avx512": 12, "amx": 12}[isa]
        for kind, operations in {"fma": 16 * sums, "dot": 4 * 16 * 16 * 64 if isa == "amx" else 64 * sums}.items():
            assert _machine.peak_macs(kind, rounds=10, repeat=2, threads=threads, clock=ticking([1, 4, 2])) == threads * 10 * operations / 2


def test_arguments():
    with pytest.raises(ValueError, match=r"read_bandwidth: x: expected at least 512 contiguous bytes, got uint8 of shape \(100,\)"):
        _machine.read_bandwidth(np.ones(100, np.uint8), threads=2)
    with pytest.raises(ValueError, match="got float32 of shape"):
        _machine.read_bandwidth(np.ones(10_000, np.float32))
    with pytest.raises(ValueError, match="contiguous"):
        _machine.read_bandwidth(np.ones(10_000, np.uint8)[::2])
    with pytest.raises(ValueError, match="peak_macs: kind: expected fma or dot, got 'div'"):
        _machine.peak_macs("div")
