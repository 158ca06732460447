"""How many threads this process should use: physical cores it may run on, within its CPU quota."""
import os
import pathlib


def _parse_cpu_list(text):
    cpus = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.strip():
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def physical_cores(affinity, sys_root="/sys"):
    """Number of physical cores behind the logical CPUs of `affinity`; siblings of one core count once."""
    cores = set()
    for cpu in affinity:
        topology = pathlib.Path(sys_root, f"devices/system/cpu/cpu{cpu}/topology")
        for name in ("core_cpus_list", "thread_siblings_list"):
            try:
                cores.add(min(_parse_cpu_list((topology / name).read_text())))
                break
            except (OSError, ValueError):
                continue
        else:
            cores.add(cpu)
    return max(1, len(cores))


def _quota_v2(directory):
    quota, period = (directory / "cpu.max").read_text().split()
    return None if quota == "max" else int(quota) / int(period)


def _quota_v1(directory):
    quota = int((directory / "cpu.cfs_quota_us").read_text())
    return None if quota <= 0 else quota / int((directory / "cpu.cfs_period_us").read_text())


def cgroup_quota(root="/"):
    """CPUs that the cgroup of this process allows, the tightest of the group and its ancestors; None without a limit.

    Reads cgroup v2's ``cpu.max`` and v1's ``cpu.cfs_quota_us`` below `root`.
    """
    try:
        lines = pathlib.Path(root, "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    quotas = []
    for line in lines:
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            mounts, read = ["sys/fs/cgroup", "sys/fs/cgroup/unified"], _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, read = ["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"], _quota_v1
        else:
            continue
        for mount in mounts:
            base = pathlib.Path(root, mount)
            # inside a container the path may name what only the host sees: the mount's top then holds our limit
            group = base / path.strip("/")
            for directory in [group, *group.parents]:
                if directory != base and base not in directory.parents:
                    break
                try:
                    quotas.append(read(directory))
                except (OSError, ValueError, ZeroDivisionError):
                    continue
    return min((q for q in quotas if q is not None), default=None)


def available_threads(root="/"):
    """min(physical cores, affinity, floor of the cgroup quota), at least 1."""
    affinity = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    quota = cgroup_quota(root)
    cores = physical_cores(affinity, os.path.join(root, "sys"))
    return max(1, min(cores, int(quota) if quota is not None else cores))
