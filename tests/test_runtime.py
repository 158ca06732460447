"""Tiers, threads, forks, and what an import brings along. What an import decides is tested in processes of its own."""
import ast
import concurrent.futures
import io
import os
import pathlib
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

import qkernels
from qkernels import _config, _cpu_count, _runtime, _selfcheck
from tests.oracle import assert_equal_bits
from tests.strategies import normal

ROOT = pathlib.Path(__file__).parent.parent
VARIABLES = ("QKERNELS_ISA", "QKERNELS_NUM_THREADS", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT")
X, SCALE = normal(0, (64, 8192)), normal(1, (8192,))  # enough work for several threads


def python(code, timeout=60, **environment):
    """Standard output of a fresh interpreter."""
    base = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=base | environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def failing_import(**environment):
    """Standard error of an import that fails."""
    done = subprocess.run([sys.executable, "-c", "import qkernels"], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


@pytest.fixture
def default_threads():
    yield
    qkernels.set_num_threads(None)


# --- tiers


def test_use_isa_nests_and_restores():
    before = qkernels.get_isa()
    for outer in qkernels.available_isa():
        with qkernels.use_isa(outer):
            assert qkernels.get_isa() == outer
            with pytest.raises(KeyError), qkernels.use_isa("scalar"):
                assert qkernels.get_isa() == "scalar"
                raise KeyError
            assert qkernels.get_isa() == outer
    assert qkernels.get_isa() == before
    assert qkernels.available_isa()[0] == "scalar" and before in qkernels.available_isa()


@pytest.mark.parametrize("name", ["sse2", "", None, 3, "AVX2", ["scalar"]])
def test_use_isa_of_an_unknown_tier(name):
    with pytest.raises(ValueError, match="use_isa: name: expected one of scalar, avx2, avx512, amx, got"), qkernels.use_isa(name):
        pass


def test_QKERNELS_ISA_is_a_ceiling():
    code = "import qkernels as q; print(q.get_isa(), *q.available_isa())"
    for i, name in enumerate(qkernels.available_isa()):
        for spelling in (name, f" {name.upper()} "):
            assert python(code, QKERNELS_ISA=spelling).split() == [name, *qkernels.available_isa()[:i + 1]]
    assert python(code, QKERNELS_ISA="").split()[1:] == python(code).split()[1:]
    beyond = "import qkernels as q\ntry:\n    with q.use_isa('avx512'): pass\nexcept ValueError as e: print(e)"
    assert python(beyond, QKERNELS_ISA="scalar") == "use_isa: name: available are scalar, got 'avx512'"


def test_QKERNELS_ISA_unknown_or_beyond_the_cpu():
    assert failing_import(QKERNELS_ISA="sse9") == "ImportError: QKERNELS_ISA: expected one of scalar, avx2, avx512, amx, got 'sse9'"
    with pytest.warns(RuntimeWarning, match="QKERNELS_ISA=avx512 is beyond this CPU, using avx2"):
        assert _runtime._ceiling("avx512", 1) == 1
    with pytest.warns(RuntimeWarning, match="QKERNELS_ISA=avx2 is beyond this CPU, using scalar"):
        assert _runtime._ceiling("avx2", 0) == 0
    assert [_runtime._ceiling(name, 2) for name in ("", "scalar", "avx2", "avx512")] == [2, 0, 1, 2] and _runtime._ceiling("amx", 3) == 3


# --- threads


THREADS = "import qkernels; print(qkernels.get_num_threads())"


def test_set_num_threads(default_threads):
    for n in (1, 3, np.int64(2)):
        qkernels.set_num_threads(n)
        assert qkernels.get_num_threads() == n
    qkernels.set_num_threads(None)
    assert qkernels.get_num_threads() == _runtime._default_threads()[0]
    for bad, error in ((0, ValueError), (-1, ValueError), (1025, ValueError), (1.0, TypeError), (True, TypeError), ("2", TypeError)):
        with pytest.raises(error, match="set_num_threads: n: expected"):
            qkernels.set_num_threads(bad)


def test_thread_variables():
    assert python(THREADS, QKERNELS_NUM_THREADS="3") == "3"
    assert python(THREADS, QKERNELS_NUM_THREADS="3", OMP_NUM_THREADS="2") == "3"
    assert python(THREADS, OMP_NUM_THREADS="3") == "3"
    assert python(THREADS, OMP_NUM_THREADS="2,4") == "2"
    assert python(THREADS, OMP_NUM_THREADS="3", OMP_THREAD_LIMIT="2") == "2"
    for bad in ("0", "many", "-1", "2.5", "2000", "²"):
        assert failing_import(QKERNELS_NUM_THREADS=bad) == f"ImportError: QKERNELS_NUM_THREADS: expected 1 to 1024, got {bad!r}"
    default = python(THREADS)
    assert python(THREADS, QKERNELS_NUM_THREADS=" ") == default
    if not _runtime.describe()["compiler"].startswith("clang"):  # LLVM's OpenMP takes memory for as many threads as it reads out of the letters, and may end the process
        assert python(THREADS, OMP_NUM_THREADS="nonsense") == default
    # the user's own number stays even where OpenMP grants fewer threads: then these do all the work
    code = """import numpy as np, qkernels as q
x = np.random.default_rng(0).standard_normal((64, 8192), np.float32)
s = np.ones(8192, np.float32)
print(q.get_num_threads(), np.array_equal(q.rms_normalization(x, s), q.rms_normalization(x, s, threads=1)))"""
    assert python(code, QKERNELS_NUM_THREADS="3", OMP_THREAD_LIMIT="1") == "3 True"


def test_B62_affinity():
    cpu = min(os.sched_getaffinity(0))
    assert python(f"import os; os.sched_setaffinity(0, {{{cpu}}}); {THREADS}") == "1"
    assert python(f"import os; os.sched_setaffinity(0, {{{cpu}}}); {THREADS}", QKERNELS_NUM_THREADS="2") == "2"


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2, V1 = "0::/slice/group\n", "12:pids:/x\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/other\n"


@pytest.mark.parametrize("files, quota", [
    ({"proc/self/cgroup": V2, "sys/fs/cgroup/slice/group/cpu.max": "150000 100000\n"}, 1.5),
    ({"proc/self/cgroup": V2, "sys/fs/cgroup/slice/group/cpu.max": "max 100000\n"}, None),
    ({"proc/self/cgroup": V2, "sys/fs/cgroup/slice/group/cpu.max": "400000 100000", "sys/fs/cgroup/slice/cpu.max": "50000 100000"}, 0.5),
    ({"proc/self/cgroup": V2, "sys/fs/cgroup/slice/group/cpu.max": "max 100000", "sys/fs/cgroup/slice/cpu.max": "300000 100000"}, 3),
    ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),  # a container with its own cgroup namespace
    ({"proc/self/cgroup": V2, "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2.5),  # a path that only the host sees
    ({"proc/self/cgroup": V2, "sys/fs/cgroup/slice/group/cpu.max": "nonsense\n"}, None),
    ({"proc/self/cgroup": V2, "sys/fs/cgroup/slice/group/cpu.max": "1000 0\n"}, None),
    ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "150000\n",
      "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n"}, 1.5),
    ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "50000"}, 4),
    ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "1000"}, None),
    ({"proc/self/cgroup": V1, "sys/fs/cgroup/unified/other/cpu.max": "120000 100000"}, 1.2),  # hybrid
    ({"proc/self/cgroup": "rubbish\n\n::\n"}, None),
    ({}, None),
])
def test_B62_cgroup_quota(tmp_path, files, quota):
    assert _cpu_count.cgroup_quota(tree(tmp_path, files)) == quota


def test_B62_available_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert _cpu_count.available_threads(tree(tmp_path / "a", {})) == 8  # nothing known about cores
    for quota, threads in (("150000 100000", 1), ("50000 100000", 1), ("399999 100000", 3), ("max 100000", 8), ("1600000 100000", 8)):
        root = tree(tmp_path / quota, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": quota})
        assert _cpu_count.available_threads(root) == threads
    siblings = {f"sys/devices/system/cpu/cpu{i}/topology/core_cpus_list": f"{i % 4},{i % 4 + 4}\n" for i in range(8)}
    assert _cpu_count.available_threads(tree(tmp_path / "smt", siblings)) == 4
    older = {f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": f"{i // 2 * 2}-{i // 2 * 2 + 1}\n" for i in range(8)}
    assert _cpu_count.available_threads(tree(tmp_path / "older", older)) == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 4})
    assert _cpu_count.available_threads(tmp_path / "smt") == 1


def test_threadpoolctl_limits_are_honoured():
    code = """import qkernels
from threadpoolctl import threadpool_limits
before = qkernels.get_num_threads()
with threadpool_limits(1, user_api="openmp"):
    inside = qkernels.get_num_threads()
print(before, inside, qkernels.get_num_threads())"""
    assert python(code, OMP_NUM_THREADS="3") == "3 1 3"
    assert python(code, QKERNELS_NUM_THREADS="2") == "2 2 2"  # said to qkernels itself


# --- pools and forks


def test_B60_a_forked_child_does_not_hang():
    code = """import multiprocessing, numpy as np, qkernels
x = np.random.default_rng(0).standard_normal((64, 8192), np.float32)
scale = np.ones(8192, np.float32)
def call(_):
    return qkernels.rms_normalization(x, scale, threads=2).tobytes(), qkernels.get_num_threads(), qkernels._runtime.describe()["forked"]
first = call(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    children = pool.map_async(call, range(4)).get(timeout=20)
assert all(c[0] == first[0] for c in children)
print(first[1:], set(c[1:] for c in children), call(0) == first)"""
    assert python(code, QKERNELS_NUM_THREADS="2") == "(2, False) {(1, True)} True"


def test_B60_one_thread_starts_no_pool():
    code = """import numpy as np, qkernels
count = lambda: int(open("/proc/self/status").read().split("Threads:")[1].split()[0])
x = np.random.default_rng(0).standard_normal((64, 8192), np.float32)
scale = np.ones(8192, np.float32)
before = count()
qkernels.rms_normalization(x, scale, threads=1)
qkernels.sample(x.reshape(-1), top_p=0.9, threads=1)
one = count()
qkernels.rms_normalization(x, scale, threads=3)
print(one - before, count() - before)"""
    assert python(code, OPENBLAS_NUM_THREADS="1") == "0 2"


def test_B60_python_threads_at_once():
    expected = qkernels.rms_normalization(X, SCALE, threads=1)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda i: qkernels.rms_normalization(X, SCALE, threads=1 + i % 3), range(24)):
            assert_equal_bits(y, expected)


# --- builds and imports


def test_free_threading_is_declared():
    # before Python 3.13 a compiled module carries no such mark: there the directive that all modules are built with is what can be seen
    directives = next(k for k in ast.walk(ast.parse((ROOT / "setup.py").read_text())) if isinstance(k, ast.keyword) and k.arg == "compiler_directives")
    assert ("freethreading_compatible", True) in [(k.arg, getattr(k.value, "value", None)) for k in directives.value.keywords]
    if sys.version_info >= (3, 13):
        import ctypes

        class Slot(ctypes.Structure):
            _fields_ = [("slot", ctypes.c_int), ("value", ctypes.c_void_p)]

        definition = ctypes.pythonapi.PyModule_GetDef
        definition.restype, definition.argtypes = ctypes.c_void_p, [ctypes.py_object]
        # PyModuleDef: PyModuleDef_Base, name, doc, size, methods, slots
        base = object.__basicsize__ + 3 * ctypes.sizeof(ctypes.c_void_p)
        address = ctypes.c_void_p.from_address(definition(_runtime) + base + 4 * ctypes.sizeof(ctypes.c_void_p)).value
        slots = {}
        while (slot := Slot.from_address(address)).slot:
            slots[slot.slot] = slot.value
            address += ctypes.sizeof(Slot)
        assert slots[4] == 1  # Py_mod_gil: Py_MOD_GIL_NOT_USED
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert python("import sys, qkernels; print(sys._is_gil_enabled())") == "False"


def test_import_brings_numpy_and_ml_dtypes_only():
    code = """import sys, numpy, ml_dtypes
before = set(sys.modules)
import qkernels
print(*sorted({m.partition(".")[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"""
    assert {name for name in python(code).split() if "cython" not in name} == {"qkernels"}  # cython's are not files


# --- configuration and self-check


def test_show_config(capsys):
    qkernels.show_config()
    text = capsys.readouterr().out
    for expected in (f"qkernels {qkernels.__version__}", _runtime.describe()["compiler"], "OpenMP", "threads", *qkernels.available_isa(), "normalization"):
        assert expected in text
    with qkernels.use_isa("scalar"):
        assert set(_config.families().values()) == {"scalar"}
    file = io.StringIO()
    assert qkernels.show_config(file) is None and file.getvalue() == text


def test_module_prints_and_checks():
    done = subprocess.run([sys.executable, "-m", "qkernels"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "self-check" in done.stdout and "all results agree" in done.stdout and "FAILED" not in done.stdout


@pytest.mark.parametrize("wrong", ["formula", "bits", "raises"])
def test_self_check_notices(monkeypatch, capsys, wrong):
    from qkernels import __main__ as main
    original = _selfcheck.CHECKS["argmax"]

    def broken(rng):
        call, expected, tolerance = original(rng)
        if wrong == "formula":
            return call, expected + 1, tolerance
        if wrong == "bits":
            return lambda t: call(t) + (qkernels.get_isa() == "scalar") * (t == 2), expected, 1
        return lambda t: 1 // 0, expected, tolerance
    monkeypatch.setitem(_selfcheck.CHECKS, "argmax", broken)
    assert main.main() == 1
    text = capsys.readouterr().out
    assert "1 kernels FAILED" in text
    assert {"formula": "argmax: scalar: ", "bits": "other bits than scalar", "raises": "argmax: ZeroDivisionError"}[wrong] in text
