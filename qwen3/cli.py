"""The command `qwen3`: text on standard output, everything else on standard error; exit codes 0, 1 (failed), 2 (usage)."""
import contextlib
import os
import pathlib
import sys
import warnings

from qwen3._extras import MissingExtraError, require

try:
    click = require("click")
except MissingExtraError as error:
    sys.exit(f"Error: {error}")

PEERS = ("onnxruntime", "llama.cpp", "llama.cpp-flash", "openvino")
WEIGHTS, ACTIVATIONS, KV = ("int4", "int8", "bf16", "f32"), ("int16", "int8", "f32"), ("f16", "bf16", "f32", "int8")


def main(args=None):
    """Run the command line `args`, by default that of the process, and exit."""
    _open_streams()
    warnings.showwarning = lambda message, *_, **__: click.echo(f"Warning: {message}", err=True)
    cli.main(args, prog_name="qwen3")


def _open_streams():
    """A stream that the caller has closed leads nowhere: there is something to read and write, and no file that is opened later takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


class Commands(click.Group):
    """Commands of which none leaves a traceback for what is wrong with a file, an argument or a stream; their help is one, too."""

    def make_context(self, *args, **kwargs):
        with _mistakes():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx):
        with _mistakes():
            return super().invoke(ctx)


@contextlib.contextmanager
def _mistakes():
    try:
        yield
    except BrokenPipeError as error:  # the reader has gone (`qwen3 … | head`), which is its right
        _silence_stdout()
        raise click.exceptions.Exit(0) from error
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:  # a full disk, say: it was that which failed
            _silence_stdout()
        where = f"{error.filename}: " if error.filename is not None else ""
        raise click.ClickException(f"{where}{error.strerror}" if error.strerror else str(error)) from error
    except (ValueError, IndexError, MissingExtraError) as error:
        raise click.ClickException(str(error)) from error
    except ImportError as error:  # a QKERNELS_ variable that says nothing known is refused when qkernels is imported
        if "QKERNELS_" not in str(error):
            raise
        raise click.ClickException(str(error)) from error
    except MemoryError as error:
        raise click.ClickException(f"out of memory: {error}") from error


def _silence_stdout():
    # What is still buffered must not fail when the interpreter flushes it at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="qkernels", message="qwen3 %(version)s")
def cli():
    """Run a dense Qwen3 on the CPU. MODEL is a directory with a checkpoint or an ONNX graph, an .onnx file, or a hub id in the local cache; by default
    a tiny demo model."""


@contextlib.contextmanager
def _usage():
    """A plain ValueError, which is about an argument and no file, is a mistake in the usage."""
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise click.UsageError(str(error)) from error


class Model(click.ParamType):
    """What names a model."""

    name = "model"

    def convert(self, value, param, ctx):
        if not value.strip():
            self.fail("the name of the model is empty", param, ctx)
        return value


_threads = click.option("--threads", type=click.IntRange(1, 1024), help="Threads; by default the physical cores that the process may use.")
_weights = click.option("--weights", type=click.Choice(WEIGHTS), help="How the matrices are packed; int4 by default. An ONNX graph has its own.")


@cli.command(short_help="Write the model's answer to a prompt.")
@click.argument("model", type=Model(), required=False)
@click.option("-p", "--prompt", required=True, help="The user's message; - reads standard input and drops one newline at its end.")
@click.option("--max-new-tokens", type=click.IntRange(0), help="By default until an end token, or the context is full.")
@click.option("--temperature", type=float, help="0 is greedy. The defaults of sampling are the checkpoint's.")
@click.option("--top-k", type=int, help="Keep that many candidates; 0 is off.")
@click.option("--top-p", type=float, help="Keep the likeliest candidates up to this probability.")
@click.option("--min-p", type=float, help="Drop candidates below this share of the likeliest.")
@click.option("--repetition-penalty", type=float, help="Make tokens that occurred less likely; 1 is off.")
@click.option("--seed", type=int, help="Of the sampler; by default drawn, and shown.")
@_weights
@click.option("--activations", type=click.Choice(ACTIVATIONS), default="int16", show_default=True, help="Precision of the matrices' inputs.")
@click.option("--kv", type=click.Choice(KV), default="f16", show_default=True, help="Precision of the key-value cache.")
@_threads
@click.option("--max-context", type=click.IntRange(1), default=4096, show_default=True, help="Tokens of prompt and text together.")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without the chat template.")
@click.option("--no-think", is_flag=True, help="Ask for an answer without reasoning.")
@click.option("--ignore-eos", is_flag=True, help="Go on after end tokens, for measurements.")
def generate(model, prompt, max_new_tokens, weights, activations, kv, threads, max_context, raw, no_think, ignore_eos, **sampling):
    """Write the model's answer to a prompt."""
    from qwen3.generate import Sampler

    text = _prompt(prompt, raw)
    if raw and no_think:
        raise click.UsageError("--no-think is a matter of the chat template, which --raw leaves out")
    with _usage():
        Sampler(**{name: value for name, value in sampling.items() if value is not None})
    with _progress() as progress, _usage():
        from qwen3.model import load

        model = load(model, weights=weights, activations=activations, threads=threads, max_context=max_context, kv=kv, progress=progress)
    if not raw:
        text = model.tokenizer.apply_chat_template([{"role": "user", "content": text}], enable_thinking=not no_think)
    sampler = Sampler.from_config(model.config, **sampling)
    ids = model.tokenizer.encode(text)
    if len(ids) >= model.max_context:
        raise click.BadParameter(f"the prompt has {len(ids)} tokens{'' if raw else ' with its template'}, but a context of {model.max_context} has room for "
                                 f"{model.max_context - 1} and an answer", param_hint="-p")
    generation = model.generate(ids, max_new_tokens=max_new_tokens, sampler=sampler, ignore_eos=ignore_eos)
    interrupted = _write(generation)
    click.echo(_statistics(generation.stats, sampler, model), err=True)
    sys.exit(1 if interrupted else 0)


def _prompt(prompt, raw):
    try:
        if prompt == "-":
            prompt = sys.stdin.buffer.read().decode()
            prompt = prompt.removesuffix("\n").removesuffix("\r")
        prompt.encode()
    except UnicodeError as error:
        raise click.BadParameter(f"not UTF-8: {error}", param_hint="-p") from error
    if not prompt or not (raw or prompt.strip()):
        raise click.BadParameter(f"the prompt {'has nothing but white space' if prompt else 'is empty'}", param_hint="-p")
    return prompt


def _write(generation):
    """Stream the text; true if the user broke it off. A reader that goes away ends it as well."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        for step in generation:
            sys.stdout.write(step.text)
            sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
        return True
    except BrokenPipeError:
        _silence_stdout()
    return False


@contextlib.contextmanager
def _progress():
    """A callable for `load` that moves a bar on a terminal; None where standard error is none."""
    if not sys.stderr.isatty():
        yield None
        return
    columns, console = require("rich.progress"), require("rich.console").Console(stderr=True)
    with columns.Progress("Packing weights", columns.BarColumn(), columns.DownloadColumn(), columns.TransferSpeedColumn(), console=console,
                          transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _statistics(stats, sampler, model):
    import qkernels

    end = {"stop": "ended by an end token", "length": "ended by the length"}.get(stats.finish_reason, "broken off")
    drawn = f", seed {sampler.seed}" if sampler.temperature > 0 else ""
    return "\n".join([
        f"prompt     {stats.prompt_tokens} tokens, TTFT {stats.first_token_seconds:.3f} s, {stats.prompt_tokens_per_second:.1f} tok/s",
        f"generated  {stats.new_tokens} tokens, TPOT {1000 * stats.seconds_per_token:.2f} ms, {stats.tokens_per_second:.1f} tok/s, {end}{drawn}",
        f"machine    {model.threads or qkernels.get_num_threads()} threads, {qkernels.get_isa()}, weights {model.weights}, "
        f"activations {model.activations}, cache {model.kv}, peak memory {_peak_memory() / 2**20:.0f} MiB",
    ])


def _peak_memory():
    """Largest resident size of the process so far, in bytes, mapped weights included."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@cli.command(short_help="What a model holds, and how it would run.")
@click.argument("model", type=Model(), required=False)
@_weights
def inspect(model, weights):
    """Show what a checkpoint holds and how it would be packed, or what runs each node of an ONNX graph and why, without loading it."""
    from qwen3.checkpoint import is_onnx

    if is_onnx(model):
        if weights is not None:
            raise click.UsageError(f"--weights: an ONNX graph has its own, got {weights}")
        from qwen3.onnx_inspection import describe_graph

        text = describe_graph(model)
        click.echo(text)
        sys.exit(1 if text.startswith("unsupported") else 0)
    from qwen3.inspection import describe

    click.echo(describe(model, weights or "int4"))


@cli.command(short_help="Time and bytes of each kernel.")
@click.argument("model", type=Model(), required=False)
@click.option("--prompt-tokens", type=click.IntRange(1), default=128, show_default=True, help="Length of the prefill.")
@click.option("--tokens", type=click.IntRange(1), default=16, show_default=True, help="Tokens to decode after it.")
@_weights
@click.option("--activations", type=click.Choice(ACTIVATIONS), default="int16", show_default=True, help="Precision of the matrices' inputs.")
@click.option("--kv", type=click.Choice(KV), default="f16", show_default=True, help="Precision of the key-value cache.")
@_threads
def profile(model, prompt_tokens, tokens, **options):
    """Time, bytes and calls of each kernel, in prefill and in decoding."""
    from qwen3.profiling import profile

    with _usage():
        text = profile(model, prompt=prompt_tokens, tokens=tokens, **options)
    click.echo(text)


class Numbers(click.ParamType):
    """Whole numbers between commas."""

    name = "N,N,…"

    def __init__(self, least, most=2**31 - 1):
        self.least, self.most = least, most

    def convert(self, value, param, ctx):
        if isinstance(value, tuple):
            return value
        numbers = []
        for part in value.split(","):
            if not (part.strip().isascii() and part.strip().isdigit() and self.least <= int(part) <= self.most):
                self.fail(f"expected numbers from {self.least} to {self.most} between commas, got {part.strip()!r}", param, ctx)
            numbers.append(int(part))
        return tuple(dict.fromkeys(numbers))


@cli.command(short_help="Speed and memory, beside other runtimes.")
@click.argument("model", type=Model(), required=False)
@click.option("--prompt", "prompts", type=Numbers(1), help="Lengths of prompts; 16,128,512,1024 by default, as far as the context has room for them.")
@click.option("--new", type=click.IntRange(0), default=128, show_default=True, help="Tokens to generate; 0 measures the prompts alone.")
@click.option("--depth", "depths", type=Numbers(0), default="0", show_default=True, help="Tokens in the context before the prompt.")
@click.option("--threads", type=Numbers(1, 1024), help="Numbers of threads; by default the physical cores that the process may use.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Samples; one more before them does not count.")
@_weights
@click.option("--activations", type=click.Choice(ACTIVATIONS), default="int16", show_default=True, help="Precision of the matrices' inputs.")
@click.option("--kv", type=click.Choice(KV), default="f16", show_default=True, help="Precision of the key-value cache.")
@click.option("--peer", "peers", type=click.Choice(PEERS), multiple=True, help="Measure this runtime too, in turns; can be repeated.")
@click.option("--gguf", type=click.Path(exists=True), help="The same model for llama.cpp and OpenVINO.")
@click.option("--ort-model", type=click.Path(exists=True), help="The same model for ONNX Runtime; by default MODEL, or its export (ort-int4).")
@click.option("--ort-io", type=click.Choice(("copy", "shared")), default="copy", show_default=True,
              help="Its past keys and values: tensors that it copies, or one buffer bound to past and present.")
@click.option("--peer-python", type=click.Path(exists=True, dir_okay=False), help="The Python that has the peers; by default this one.")
@click.option("--format", "form", type=click.Choice(("markdown", "csv", "json")), help="By default what the name of --output says, else Markdown.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, writable=True), help="Write to a file, and Markdown to the terminal.")
def benchmark(form, output, **plan):
    """Measure prompts and decoding, beside other runtimes and the limits of the machine."""
    from qwen3.benchmark import UsageError
    from qwen3.benchmark import benchmark as measure
    from qwen3.benchmark_report import render

    suffix = pathlib.Path(output).suffix if output else ""
    form = form or {".csv": "csv", ".json": "json"}.get(suffix, "markdown")
    if output and not os.access(pathlib.Path(output).absolute().parent, os.W_OK):
        raise click.BadParameter(f"{output}: its directory is not there or not writable", param_hint="--output")
    shown = sys.stderr.isatty()
    try:
        report = measure(**plan, progress=(lambda text: click.echo(f"\r\x1b[K{text}", nl=False, err=True)) if shown else None)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    finally:
        if shown:
            click.echo("\r\x1b[K", nl=False, err=True)
    if output:
        pathlib.Path(output).write_text(render(report, form), encoding="utf-8")
        form = "markdown"
    if form != "markdown":
        for note in report["notes"]:
            click.echo(f"Note: {note}", err=True)
    click.echo(render(report, form), nl=False)
    sys.exit(0 if report["complete"] else 1)


@cli.command(short_help="Write a checkpoint as an ONNX graph.")
@click.argument("model", type=Model())
@click.argument("out", type=click.Path())
@click.option("--contract", type=click.Choice(("ort-int4", "float", "int4-qdq")), default="ort-int4", show_default=True, help="Which graph to write.")
@click.option("--dtype", type=click.Choice(("bf16", "f32")), help="Of the float and int4-qdq graphs; bf16 by default.")
@click.option("--accuracy-level", type=click.IntRange(0, 4), help="What ort-int4 permits activations to be: 4, the default, is int8.")
@_threads
def export(model, out, **options):
    """Write the checkpoint MODEL as an ONNX decoder graph into the directory OUT."""
    from qwen3.onnx_export import export as write

    with _progress() as progress, _usage():
        metadata = write(model, out, progress=progress, **options)
    graph = metadata["graph"]
    click.echo(f"{out}: {metadata['contract']}, {graph['nodes']} nodes, {graph['initializers']} initializers", err=True)
