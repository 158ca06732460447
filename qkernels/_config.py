"""What this build and this process run: for bug reports, and the first thing to look at when something is slow."""
import importlib
import os
import sys

from qkernels import _runtime


def families():
    """The tier that each registered family runs now: a family without a body for a tier takes the next lower one's."""
    from qkernels import registry
    resolved = {}
    for family in dict.fromkeys(k.family for k in registry.KERNELS if k.family != "numpy"):
        bodies = getattr(importlib.import_module(f"qkernels.{family}"), "_tiers", _runtime.TIERS_OF_ALL)
        reachable = _runtime.ISA_TIERS[:_runtime.ISA_TIERS.index(_runtime.get_isa()) + 1]
        resolved[family] = next((t for t in reversed(reachable) if t in bodies), "no tiers")
    return resolved


def show_config(file=None):
    """Print compiler, OpenMP, CPU features, instruction-set tiers, threads, and the tier that each family of kernels runs.

    Parameters
    ----------
    file : text file, optional
        Standard output where it is None.

    Examples
    --------
    >>> import io, qkernels
    >>> text = io.StringIO()
    >>> qkernels.show_config(text)
    >>> text.getvalue().split()[0]
    'qkernels'
    """
    import ml_dtypes
    import numpy as np

    from qkernels import __version__
    c = _runtime.describe()
    set_here = [f"{name}={os.environ[name]}" for name in ("QKERNELS_ISA", "QKERNELS_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT")
                if name in os.environ]
    rows = [("python", f"{sys.version.split()[0]}, numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}"),
            ("compiler", f"{c['compiler']}, OpenMP {c['openmp']}"),
            ("CPU", " ".join(c["cpu_features"]) or "baseline only"),
            ("tier", f"{c['isa']}, of {' '.join(c['isa_available'])}"),
            ("threads", f"{c['threads']}, of {c['threads_available']} available" + (" (a forked child runs serially)" if c["forked"] else "")),
            ("environment", " ".join(set_here) or "nothing set")]
    rows += [("family" if i == 0 else "", f"{family:<16} {tier}") for i, (family, tier) in enumerate(families().items())]
    print(f"qkernels {__version__}", *(f"  {name:<12} {text}" for name, text in rows), sep="\n", file=file)
