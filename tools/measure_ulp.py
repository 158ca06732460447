#!/usr/bin/env python3
"""Measure the largest float32 error of functions of single elements, in units in the last place.

    python tools/measure_ulp.py [--stride 1] [name ...]

runs every stride-th of all 2^32 inputs (default: all) against extended precision, which has to have 64 bits, and prints the largest error, that among normal
results, and, for functions that never decrease, how often they do. A function takes some minutes.
"""
import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import qkernels  # noqa: E402
from tests.test_functions import WIDE  # noqa: E402  (the oracles of the tests)

GROWING = {"exp", "log", "tanh", "erf", "sigmoid", "softplus", "softsign", "elu", "selu", "celu", "hard_sigmoid"}
STEP = 1 << 22


def logistic(x):
    t = np.exp(-np.abs(np.longdouble(x)))
    return np.where(x >= 0, 1 / (1 + t), t / (1 + t))


FUNCTIONS = {name: (call, wide) for name, (call, wide, _) in WIDE.items()} | {
    "sigmoid": (qkernels.sigmoid, logistic), "silu": (qkernels.silu, lambda x: np.longdouble(x) * logistic(x))}


def measure(name, stride):
    call, wide = FUNCTIONS[name]
    worst, normal, falls = (0.0, 0.0), (0.0, 0.0), 0
    for first in range(0, 1 << 32, STEP * stride):
        x = (first + stride * np.arange(STEP, dtype=np.uint64)).astype(np.uint32).view(np.float32)
        x = x[np.isfinite(x)]
        if not x.size:
            continue
        v, y = np.longdouble(wide(np.float64(x))), call(x)
        use = np.isfinite(v) & (np.abs(v) < 2.0**128 * (1 - 2.0**-25))
        exponent = np.frexp(v[use])[1]
        error = np.abs(y[use] - v[use]) / np.maximum(np.ldexp(np.longdouble(1), exponent - 24), np.longdouble(2)**-149)
        if error.size:
            at = error.argmax()
            worst = max(worst, (float(error[at]), float(x[use][at])))
            usual = np.abs(v[use]) >= 2.0**-126
            if usual.any():
                at = np.flatnonzero(usual)[error[usual].argmax()]
                normal = max(normal, (float(error[at]), float(x[use][at])))
        below = np.signbit(x)  # where codes grow as values fall
        falls += int((np.diff(y[~below]) < 0).sum() + (np.diff(y[below]) > 0).sum())
    fall = f", decreases {falls} times" if name in GROWING else ""
    print(f"{name}: {worst[0]:.4f} ulp at {worst[1]!r}; normal results {normal[0]:.4f} ulp at {normal[1]!r}{fall}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("names", nargs="*", metavar="name")
    options = parser.parse_args()
    with np.errstate(all="ignore"):
        for function in options.names or FUNCTIONS:
            measure(function, options.stride)
