"""What `qwen3.benchmark.benchmark` measured, as Markdown, CSV or JSON."""
import csv
import io
import json
import statistics

__all__ = ["FORMATS", "render"]

FORMATS = ("markdown", "csv", "json")
NOTHING = "—"
PACKAGES = {"llama.cpp": "llama-cpp-python", "llama.cpp-flash": "llama-cpp-python", "openvino": "openvino-genai"}


def render(report, form="markdown"):
    """A report as text.

    Parameters
    ----------
    report : dict
        What `benchmark` returned, or its JSON read back.
    form : {"markdown", "csv", "json"}
        CSV has a row for each sample, JSON is everything.

    Returns
    -------
    str
        Ends in a newline.
    """
    return {"markdown": _markdown, "csv": _csv, "json": lambda r: json.dumps(r, indent=1) + "\n"}[form](report)


def _markdown(report):
    settings, machine = report["settings"], report["machine"]
    peers = any(len(case["runtimes"]) > 1 for case in report["cases"])
    lines = [f"# qwen3 benchmark: {report['model']}", "", _setup(report), ""]
    rows = [("threads", "depth", "prompt", "runtime", "TTFT ms", "prompt tok/s", "TPOT ms", "median", "p95", "decode tok/s", "output tok/s", "peak tok/s",
             *(("prompt ÷ it", "decode ÷ it", "output ÷ it") if peers else ()))]
    use = [("threads", "depth", "prompt", "runtime", "decode GB/s", "of the bandwidth", "prompt GMAC/s", "of the peak", "allocated B/token", "copied B/token")]
    for case in report["cases"]:
        for name, found in case["runtimes"].items():
            value = lambda key, scale=1.0, digits=1, found=found: _number(found["summary"].get(key), scale, digits)
            place = (case["threads"], case["depth"], case["prompt"], name)
            rows.append((*place, value("ttft", 1e3), value("prefill"), value("tpot", 1e3, 2), value("tpot_median", 1e3, 2), value("tpot_p95", 1e3, 2),
                         value("decode"), value("output"), value("peak"),
                         *((_ratio(found, "prefill"), _ratio(found, "decode"), _ratio(found, "output")) if peers else ())))
            use.append((*place, value("bytes_rate", 1e-9), value("bandwidth_share", 100, 0) + _percent(found, "bandwidth_share"), value("macs_rate", 1e-9),
                        value("macs_share", 100, 0) + _percent(found, "macs_share"), _count(found.get("allocated")), _count(found.get("copied"))))
    lines += [*_table(rows, 4), "", f"Medians of {settings['repeat']} samples after one that is not counted, {settings['new']} new tokens, greedy."
              + (" ÷: our rate divided by theirs, pair by pair: median (least to greatest)." if peers else ""), ""]
    lines += [*_table(use, 4), "", *_limits(report), ""]
    lines += [*_table(list(_memory(report)), 3), ""]
    lines += [f"- {note}" for note in report["notes"]] + [""] * bool(report["notes"])
    return "\n".join([*lines, _machine(machine)]) + "\n"


def _machine(m):
    cores = f"{m['cores']} cores" + (", virtual" if m["virtual"] else "")
    load = " to ".join(str(m[key][0]) for key in ("load_average", "load_average_after") if key in m)
    return "; ".join([
        f"{m['cpu']} ({m['cpu_id'] or m['machine']}; {cores}), {m['isa']}, {m['memory'] / 2**30:.0f} GiB",
        f"{m['compiler']}, " + ", ".join(f"{name} {version}" for name, version in m["versions"].items()),
        f"{m['os']}, {m['kernel']}", m["date"], f"load average {load}", *(f"{name}={value}" for name, value in m["environment"].items())])


def _setup(report):
    ours = next((r["facts"] for r in report["runtimes"] if r["runtime"] == "qkernels"), {})
    d = report["dimensions"]
    text = (f"{d['num_hidden_layers']} layers, hidden size {d['hidden_size']}, inner size {d['intermediate_size']}, {d['num_attention_heads']} query heads, "
            f"{d['num_key_value_heads']} key and value heads of size {d['head_dim']}, vocabulary {d['vocab_size']:,}.")
    if ours:
        text += f" qkernels: weights {ours['weights']}, activations {ours['activations']}, cache {ours['kv']}."
    if "onnxruntime" in report["settings"]["peers"]:
        text += f" onnxruntime: past and present {'in one shared buffer' if report['settings']['ort_io'] == 'shared' else 'as tensors, copied'}."
    return text


def _limits(report):
    for threads in report["settings"]["threads"]:
        cases = [case for case in report["cases"] if case["threads"] == threads]
        limits = [limit for case in cases for limit in case["limits"]]
        reads = [rate for case in cases for found in case["runtimes"].values() for sample in found["samples"] for rate in sample["read"]]
        if limits:
            dot, fma = ([limit[kind] for limit in limits] for kind in ("dot", "fma"))
            yield (f"The machine with {threads} thread{'s' * (threads > 1)}: it reads {_spread(reads, 1)} GB/s around the samples, and does "
                   f"{_spread(dot)} GMAC/s in bytes, {_spread(fma)} in float32 (median, least to greatest).")


def _spread(rates, digits=0):
    return "{:.{d}f} ({:.{d}f} to {:.{d}f})".format(*(f(rates) / 1e9 for f in (statistics.median, min, max)), d=digits)


def _memory(report):
    """Loading time, and resident memory after loading and at the end, with the most so far."""
    yield ("threads", "runtime", "version", "load s", "loaded MiB", "peak while loading MiB", "afterwards MiB", "peak MiB")
    for r in report["runtimes"]:
        loaded, after = r["memory"]["loaded"], r["memory"].get("after", {})
        size = lambda stage, key: f"{stage[key] / 2**20:,.0f}" if key in stage else NOTHING
        version = r["versions"].get(PACKAGES.get(r["runtime"], r["runtime"]), "")
        yield (r["threads"], r["runtime"], version, f"{r['load_seconds']:.2f}", size(loaded, "resident"), size(loaded, "peak"), size(after, "resident"),
               size(after, "peak"))


def _number(spread, scale, digits):
    return f"{spread['median'] * scale:,.{digits}f}" if spread else NOTHING


def _percent(found, key):
    return " %" if found["summary"].get(key) else ""


def _count(value):
    return f"{value:,.0f}" if value is not None else NOTHING


def _ratio(found, key):
    spread = found.get("ratio", {}).get(key)
    return f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})" if spread else ""


def _table(rows, left):
    """Lines of a Markdown table; the first row is its head, columns from `left` on stand right."""
    rows = [tuple(map(str, row)) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    line = lambda row: "| " + " | ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))) + " |"
    rule = "|" + "|".join("-" * (w + 2) if i < left else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return [line(rows[0]), rule, *map(line, rows[1:])]


COLUMNS = ("ttft", "prefill", "tpot", "tpot_median", "tpot_p95", "decode", "output", "peak", "bytes_rate", "bandwidth_share", "macs_rate", "macs_share")


def _csv(report):
    """A row for each sample: seconds and rates per second; the times of its tokens last."""
    machine, text = report["machine"], io.StringIO()
    same = {name: machine[name] for name in ("date", "cpu", "isa", "compiler", "os")} | {"model": report["model"]}
    versions = {(r["runtime"], r["threads"]): " ".join(f"{n}={v}" for n, v in r["versions"].items()) for r in report["runtimes"]}
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*same, "runtime", "versions", "threads", "depth", "prompt", "new", "sample", "read_before", "read_after", "dot", "fma", *COLUMNS,
                     "seconds"))
    for case in report["cases"]:
        place = (case["threads"], case["depth"], case["prompt"], case["new"])
        for name, found in case["runtimes"].items():
            for i, (sample, limit) in enumerate(zip(found["samples"], case["limits"], strict=True)):
                figures = ("" if sample[key] is None else sample[key] for key in COLUMNS)
                writer.writerow((*same.values(), name, versions[name, case["threads"]], *place, i + 1, *sample["read"], limit["dot"], limit["fma"], *figures,
                                 " ".join(map(str, sample["seconds"]))))
    return text.getvalue()
