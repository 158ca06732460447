"""What a measurement was made on: processor, memory, compiler, versions, system. Figures without it say little."""
import datetime
import os
import pathlib
import platform
import sys

__all__ = ["fingerprint", "last_cache"]


def fingerprint():
    """The machine and the software, as a dictionary of strings, numbers and lists; nothing in it names the host or the user.

    Examples
    --------
    >>> from qwen3.machine import fingerprint
    >>> sorted(fingerprint())[:3]
    ['caches', 'compiler', 'cores']
    """
    import ml_dtypes
    import numpy as np

    import qkernels
    from qkernels import _runtime
    from qkernels._cpu_count import cgroup_quota

    runtime, cpu = _runtime.describe(), _cpu()
    prefixes = ("QKERNELS_", "OMP_", "GOMP_", "KMP_", "MKL_", "MALLOC_", "ONEDNN_", "OPENBLAS_")
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes)}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu["model name"], "cpu_id": cpu["id"], "virtual": cpu["virtual"],
        "isa": runtime["isa"], "isa_available": runtime["isa_available"], "features": runtime["cpu_features"],
        "cores": runtime["threads_available"], "logical_cpus": os.cpu_count(), "quota": cgroup_quota(), "threads": runtime["threads"],
        "caches": _caches(), "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "compiler": runtime["compiler"], "openmp": runtime["openmp"],
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__, "qkernels": qkernels.__version__},
        "os": _system(), "kernel": f"{platform.system()} {platform.release()}", "machine": platform.machine(),
        "environment": variables, "load_average": [round(x, 2) for x in os.getloadavg()],
    }


def last_cache():
    """Bytes of the largest cache of the first processor; 32 MiB where the system does not say."""
    return max((c["bytes"] for c in _caches()), default=32 << 20)


def _read(path):
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return None


def _cpu():
    fields = {}
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        name, colon, value = line.partition(":")
        if not colon:
            break  # of the first processor
        fields[name.strip()] = value.strip()
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{key} {fields[key]}" for key in ("vendor_id", "cpu family", "model", "stepping") if key in fields]
    return {"model name": name, "id": ", ".join(numbers) or None, "virtual": "hypervisor" in fields.get("flags", "").split()}


def _caches():
    found = []
    for directory in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_read(directory / name) for name in ("level", "type", "size"))
        if level and kind and size and size.endswith("K") and size[:-1].isdigit():
            found.append({"level": int(level), "type": kind, "bytes": 1024 * int(size[:-1])})
    return found


def _system():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)
