"""Nothing in the registry is without its test, example, benchmark and line in the documentation; nothing public is outside of it."""
import ast
import doctest
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import qkernels
from qkernels import _selfcheck, registry

ROOT = pathlib.Path(__file__).parent.parent
# public, but no kernel: the runtime, a cache's bookkeeping, a namespace
NOT_KERNELS = {"available_isa", "get_isa", "get_num_threads", "set_num_threads", "show_config", "use_isa", "KVCache", "contrib"}
NAMES = [k.name for k in registry.KERNELS]


def differential_tests():
    """Names in the differential marks of the test functions."""
    names = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = [d for d in node.decorator_list if isinstance(d, ast.Call) and ast.unparse(d.func) == "pytest.mark.differential"]
                names |= {a.value for mark in marks for a in mark.args if isinstance(a, ast.Constant)}
    return names


def benchmarks():
    """Names in the `kernels` of the benchmark classes that time something."""
    names = set()
    for path in sorted((ROOT / "asv_bench/benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any(isinstance(f, ast.FunctionDef) and f.name.startswith(("time_", "track_")) for f in node.body):
                for assignment in node.body:
                    if isinstance(assignment, ast.Assign) and ast.unparse(assignment.targets[0]) == "kernels":
                        names |= set(ast.literal_eval(assignment.value))
    return names


def test_rows_are_distinct_and_callable():
    assert len(set(NAMES)) == len(NAMES)
    operators = [(k.domain, k.op_type, version) for k in registry.KERNELS for version in k.versions]
    assert len(set(operators)) == len(operators)
    for k in registry.KERNELS:
        assert callable(k.function) and k.summary and k.dtypes, k.name
        assert (k.domain is None) == (k.op_type is None) == (not k.versions), k.name
        assert k.family == "numpy" or (ROOT / f"qkernels/{k.family}.pyx").exists(), k.name


def test_every_kernel_has_a_differential_test():
    assert not set(NAMES) - differential_tests()
    assert not differential_tests() - set(NAMES), "marks that name no kernel"


def test_every_kernel_has_a_benchmark():
    assert not {k.name for k in registry.KERNELS if not k.layout} - benchmarks()
    assert not benchmarks() - set(NAMES), "benchmarks that name no kernel"


def test_every_family_is_in_the_self_check():
    assert not {k.family for k in registry.KERNELS} - {k.family for k in registry.KERNELS if k.name in _selfcheck.CHECKS} - {"numpy"}


@pytest.mark.parametrize("name", NAMES)
def test_documented_example(name):
    function = next(k for k in registry.KERNELS if k.name == name).function
    documentation = function.__doc__
    assert "Examples\n" in documentation and ("Parameters\n" in documentation)
    test = doctest.DocTestParser().get_doctest(documentation, {}, name, None, None)
    assert test.examples
    output = []
    with np.printoptions(precision=8, linewidth=75, threshold=1000, suppress=False, floatmode="maxprec", sign="-"):
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=output.append)
    assert not result.failed, "".join(output)


def test_public_names_are_registered():
    public = {*qkernels.__all__, "abs", "max", "min", "pow", "range", "round", "slice", *(f"contrib.{name}" for name in qkernels.contrib.__all__)}
    functions = {k.function for k in registry.KERNELS}
    for name in public - NOT_KERNELS:
        *path, last = name.split(".")
        assert getattr(qkernels.contrib if path else qkernels, last) in functions, f"{name} is neither registered nor listed as no kernel"
    assert set(NAMES) <= public
    for name in public:
        *path, last = name.split(".")
        assert hasattr(qkernels.contrib if path else qkernels, last), name


def test_operators_page_is_current():
    done = subprocess.run([sys.executable, "-W", "error", "-m", "qkernels.registry"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "" and done.stdout == registry.markdown()
    page = (ROOT / "docs/operators.md").read_text(encoding="utf-8")
    assert page == registry.markdown(), "docs/operators.md: run `python -m qkernels.registry > docs/operators.md`"
    for k in registry.KERNELS:
        assert f"| `{k.name}` | {k.family}" in page


def test_find():
    assert registry.find("RMSNormalization").name == "rms_normalization"
    assert registry.find("RMSNormalization", opset=22) is None
    assert registry.find("ArgMax", "", 13).name == "argmax" and registry.find("ArgMax", "", 12) is None
    assert registry.find("SkipSimplifiedLayerNormalization", "com.microsoft").name == "skip_simplified_layer_normalization"
    assert registry.find("SkipSimplifiedLayerNormalization") is None
