"""Hypothesis strategies shared by the differential tests."""
import numpy as np
from hypothesis import strategies as st

from tests.oracle import FLOAT_DTYPES

float_dtypes = st.sampled_from(FLOAT_DTYPES)
seeds = st.integers(0, 2**32 - 1)
# lengths around the vector width and its multiples, where tails go wrong
lengths = st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 129, 255, 256, 257]))


def normal(seed, shape, dtype=np.float32, scale=1.0):
    """Reproducible normally distributed values of a dtype."""
    return (np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)).astype(dtype)
