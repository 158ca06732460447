"""Build script: one extension per family, found by its .pyx and its folder in csrc (metadata lives in pyproject.toml)."""
import os
import pathlib
import sys

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

JOBS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
ROOT = pathlib.Path(__file__).parent

# One set of flags for every source: what an ISA tier may use is said in its source by a target region, never here.
COMPILE = ["-O3", "-std=gnu11", "-fopenmp", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra"]
# Cython's generated C leaves unused parameters and partly initialized type objects; our own C is compiled with the same flags.
COMPILE += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]


def extension(pyx):
    sources = [pyx, *sorted((ROOT / "qkernels/csrc" / pyx.stem).glob("*.c"))]
    headers = [h for folder in ("simd", "rows", pyx.stem) for h in sorted((ROOT / "qkernels/csrc" / folder).glob("*.h"))]
    relative = lambda paths: [str(p.relative_to(ROOT)) for p in paths]
    return Extension(f"qkernels.{pyx.stem}", relative(sources), depends=relative(headers), include_dirs=["qkernels/csrc", numpy.get_include()],
                     define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")], extra_compile_args=COMPILE, extra_link_args=["-fopenmp"])


class parallel_build_ext(build_ext):
    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or JOBS


if os.name != "posix":
    sys.exit("qkernels builds on Linux and macOS with gcc or clang")

# Cython does not follow `from package cimport module`, so a changed .pxd renews all generated sources.
declared = max((p.stat().st_mtime for p in (ROOT / "qkernels").glob("*.pxd")), default=0)
stale = any(c.stat().st_mtime < declared for c in (ROOT / "build/cython/qkernels").glob("*.c"))

setup(
    ext_modules=cythonize(
        [extension(p) for p in sorted((ROOT / "qkernels").glob("*.pyx"))], nthreads=JOBS, build_dir="build/cython", force=stale,
        compiler_directives=dict(language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True,
                                 embedsignature=True, freethreading_compatible=True)),
    cmdclass={"build_ext": parallel_build_ext},
)
