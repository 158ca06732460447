"""Run ONNX's node tests and print, for each operator, how many there are, how many are included, and how many pass."""
import collections
import sys

from tests import node_tests


def main():
    rows, failed = collections.defaultdict(lambda: [0, 0, 0]), []
    for name, case in node_tests.included().items():
        row = rows[node_tests.operator(case)]
        row[0] += 1
        if node_tests.reason(name):
            continue
        row[1] += 1
        try:
            node_tests.run(case)
            row[2] += 1
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {str(error).strip()[:200]}")
    print(f"{'operator':36}{'tests':>8}{'included':>10}{'passed':>8}")
    for op, (total, chosen, passed) in sorted(rows.items()):
        print(f"{op:36}{total:8}{chosen:10}{passed:8}")
    print(f"{'all':36}" + "{:8}{:10}{:8}".format(*(sum(column) for column in zip(*rows.values(), strict=True))))
    for name, reasons in node_tests.other_versions().items():
        print(f"not run: {name}: {'; '.join(reasons)}")
    for line in failed:
        print(f"FAILED {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
