"""What `qwen3.benchmark.benchmark` measured, as Markdown, CSV or JSON."""
import csv
import io
import json

__all__ = ["FORMATS", "render"]

FORMATS = ("markdown", "csv", "json")
NOTHING = "—"


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
    lines += [*_table([("threads", "runtime", "version", "load s", "loaded MiB", "peak while loading MiB", "afterwards MiB", "peak MiB"), *_memory(report)], 3), ""]
    lines += [f"- {note}" for note in report["notes"]] + [""] * bool(report["notes"])
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    cores = f"{machine['cores']} cores" + (", virtual" if machine["virtual"] else "")
    lines.append(f"{machine['cpu']} ({machine['cpu_id'] or machine['machine']}; {cores}), {machine['isa']}, {machine['memory'] / 2**30:.0f} GiB; "
                 f"{machine['compiler']}, {versions}; {machine['os']}, {machine['kernel']}; {machine['date']}; load average {machine['load_average'][0]} before, "
                 f"{machine.get('load_average_after', [NOTHING])[0]} after"
                 + "".join(f"; {name}={value}" for name, value in machine["environment"].items()))
    return "\n".join(lines) + "\n"


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
    for limit in report["limits"]:
        reads = [rate for case in report["cases"] if case["threads"] == limit["threads"] for rate in case["read_bandwidth"]]
        read = f"reads {_range(reads, 1e-9)} GB/s (least to greatest of {len(reads)} measurements, one before each round of samples), " if reads else ""
        plural = "s" if limit["threads"] > 1 else ""
        yield (f"The machine with {limit['threads']} thread{plural}: {read}at most {limit['dot'] / 1e9:.0f} GMAC/s in bytes and {limit['fma'] / 1e9:.0f} "
               "in float32.")


def _range(values, scale):
    return f"{min(values) * scale:.1f} to {max(values) * scale:.1f}"


def _memory(report):
    for r in report["runtimes"]:
        loaded, after = r["memory"]["loaded"], r["memory"].get("after", {})
        size = lambda stage, key: f"{stage[key] / 2**20:,.0f}" if key in stage else NOTHING
        version = r["versions"].get({"llama.cpp": "llama-cpp-python", "openvino": "openvino-genai"}.get(r["runtime"], r["runtime"]), "")
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
    versions = {(r["runtime"], r["threads"]): " ".join(f"{n}={v}" for n, v in r["versions"].items()) for r in report["runtimes"]}
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("date", "cpu", "isa", "compiler", "os", "model", "runtime", "versions", "threads", "depth", "prompt", "new", "sample", "read_bandwidth", *COLUMNS,
                     "seconds"))
    for case in report["cases"]:
        for name, found in case["runtimes"].items():
            for i, sample in enumerate(found["samples"]):
                writer.writerow((machine["date"], machine["cpu"], machine["isa"], machine["compiler"], machine["os"], report["model"], name,
                                 versions[name, case["threads"]], case["threads"], case["depth"], case["prompt"], case["new"], i + 1, case["read_bandwidth"][i],
                                 *("" if sample[key] is None else sample[key] for key in COLUMNS), " ".join(map(str, sample["seconds"]))))
    return text.getvalue()
