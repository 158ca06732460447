"""Ratios to the peers: python asv_bench/ratios.py normalization.RMSNormalization [parameter=value,value ...] [--rounds 5]

The benchmark's own set-up, each of qkernels and its peers in a process of its own, since the idle threads of one runtime slow down another's: they
take turns, stopped between them. A row of the table is one combination of the parameters: our time, the peer's and how many times ours is faster, the
median of the rounds' ratios with the least and the greatest.
"""
import importlib
import itertools
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

BUDGET = 0.03  # seconds of a sample


def serve():
    """A worker: a line is a benchmark to set up, or "go" for a sample."""
    answers, sys.stdout = sys.stdout, sys.stderr
    common, call = importlib.import_module("benchmarks.common"), None
    for line in sys.stdin:
        if line == "go\n":
            reply = common.seconds(call, BUDGET, 3)
        else:
            name, values = json.loads(line)
            module, _, cls = name.rpartition(".")
            benchmark, reply = getattr(importlib.import_module(f"benchmarks.{module}"), cls)(), None
            try:
                benchmark.setup(*values)
                call = benchmark.call
            except NotImplementedError as error:
                reply = str(error) or "n/a"
        print(json.dumps(reply), file=answers, flush=True)


class Worker:
    def __init__(self):
        here = pathlib.Path(__file__).resolve().parent
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])}
        self.process = subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, line):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a worker failed at {line}")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(answer)

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


def compare(name, wanted, rounds):
    module, _, cls = name.rpartition(".")
    benchmark = getattr(importlib.import_module(f"benchmarks.{module}"), cls)
    *names, last = benchmark.param_names
    assert last == "who", f"{name} has no peers"
    unknown = set(wanted) - set(benchmark.param_names)
    if unknown:
        raise SystemExit(f"{name}: parameters are {', '.join(benchmark.param_names)}, got {', '.join(unknown)}")
    choices = [[v for v in values if str(v) in wanted.get(p, map(str, values))] for p, values in zip(benchmark.param_names, benchmark.params, strict=True)]
    peers = [w for w in choices[-1] if w != "qkernels"]
    workers = {who: Worker() for who in ["qkernels", *peers]}
    print("|", " | ".join([*names, "ours, us", *(f"{p}, us | ours is faster" for p in peers)]), "|")
    print("|" + "---|" * (len(names) + 1 + 2 * len(peers)), flush=True)
    try:
        for values in itertools.product(*choices[:-1]):
            missing = {who: worker.ask(json.dumps([name, [*values, who]])) for who, worker in workers.items()}
            present = [who for who in workers if missing[who] is None]
            times = {who: [] for who in present}
            for r in range(rounds):
                for who in present[::1 if r % 2 else -1]:
                    times[who].append(workers[who].ask("go"))
            cells = [*map(str, values), f"{statistics.median(times['qkernels']) * 1e6:.2f}"]
            for p in peers:
                if p in present:
                    ratios = [theirs / ours for ours, theirs in zip(times["qkernels"], times[p], strict=True)]
                    cells += [f"{statistics.median(times[p]) * 1e6:.2f}", f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"]
                else:
                    cells += ["n/a", "n/a"]
            print("|", " | ".join(cells), "|", flush=True)
    finally:
        for worker in workers.values():
            worker.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        arguments, rounds = sys.argv[1:], 5
        if "--rounds" in arguments:
            i = arguments.index("--rounds")
            rounds = int(arguments.pop(i + 1))
            arguments.pop(i)
        if not arguments:
            raise SystemExit(__doc__)
        sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent), str(pathlib.Path(__file__).resolve().parents[1])]
        compare(arguments[0], {k: v.split(",") for k, v in (a.split("=", 1) for a in arguments[1:])}, rounds)
