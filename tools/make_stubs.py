"""Write the type stubs of the compiled modules, qkernels/<family>.pyi, from their signatures.

    python tools/make_stubs.py           # writes; tests/test_stubs.py checks that they are current
"""
import importlib
import inspect
import pathlib

PACKAGE = pathlib.Path(__file__).parents[1] / "qkernels"
HEADER = '"""Made by tools/make_stubs.py; do not edit."""\nfrom typing import Any\n\nfrom numpy.typing import ArrayLike\n'
POSITIONAL_TYPES = {"cache": "Any", "layer": "int", "n": "int"}
KEYWORD_TYPES = {"out": "Any", "outputs": "tuple[int, ...] | int", "threads": "int | None"}


def parameter(p):
    """One parameter, its type taken from its default."""
    if p.name == "self":
        return "self"
    star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    if star:
        return f"{star}{p.name}: Any"
    if p.default is p.empty:
        return f"{p.name}: {'Any' if p.kind == p.KEYWORD_ONLY else POSITIONAL_TYPES.get(p.name, 'ArrayLike')}"
    kind = KEYWORD_TYPES.get(p.name) or {bool: "bool", int: "int", float: "float", str: "str"}.get(type(p.default))
    if kind is None:
        kind = "ArrayLike | None" if p.default is None and p.kind != p.KEYWORD_ONLY else "Any"
    return f"{p.name}: {kind} = ..."


def signature(function):
    """The parameters as a stub writes them, with the bare star where keywords begin."""
    parts, keywords = [], False
    for p in inspect.signature(function).parameters.values():
        if p.kind == p.KEYWORD_ONLY and not keywords:
            keywords = True
            parts.append("*")
        keywords = keywords or p.kind == p.VAR_POSITIONAL
        parts.append(parameter(p))
    return ", ".join(parts)


def class_lines(cls):
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    lines = [f"class {cls.__name__}{f'({bases})' if bases else ''}:"]
    for name, member in sorted(vars(cls).items()):
        if name in ("__init__", "__call__") or not name.startswith("_"):
            if inspect.isgetsetdescriptor(member) or inspect.ismemberdescriptor(member) or isinstance(member, property):
                lines += ["    @property", f"    def {name}(self) -> Any: ..."]
            elif isinstance(member, staticmethod):
                lines += ["    @staticmethod", f"    def {name}({signature(member.__func__)}) -> Any: ..."]
            elif callable(member):
                try:
                    text = signature(member)
                except ValueError:
                    text = "self, *args: Any, **kwargs: Any"
                lines.append(f"    def {name}({text}) -> {'None' if name == '__init__' else 'Any'}: ...")
    if "__init__" not in vars(cls) or len(lines) == 1:
        lines.insert(1, "    def __init__(self, *args: Any, **kwargs: Any) -> None: ...")
    return lines


def stub(module):
    """The stub of one compiled module."""
    lines = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            lines += ["", *class_lines(value)]
        elif callable(value):
            lines += ["", f"def {name}({signature(value)}) -> Any: ..."]
    return HEADER + "\n".join(lines) + "\n"


def stubs():
    """Path and text of every stub."""
    for source in sorted(PACKAGE.glob("*.pyx")):
        if not source.stem.startswith("_"):
            yield source.with_suffix(".pyi"), stub(importlib.import_module(f"qkernels.{source.stem}"))


if __name__ == "__main__":
    for path, text in stubs():
        path.write_text(text)
        print(path.relative_to(PACKAGE.parent))
