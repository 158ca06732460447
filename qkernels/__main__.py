"""``python -m qkernels``: the configuration, and a self-check of a few seconds. Exit code 1 where a kernel is wrong."""
import time

from qkernels import available_isa, show_config
from qkernels._console import run
from qkernels._selfcheck import run as check


def main():
    show_config()
    print(f"\nself-check on {', '.join(available_isa())}")
    start = time.perf_counter()
    failed = check()
    print(f"{failed} kernels FAILED" if failed else "all results agree", f"({time.perf_counter() - start:.1f} s)")
    return 1 if failed else 0


if __name__ == "__main__":
    run(main)
