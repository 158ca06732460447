"""The type stubs are those of the compiled modules."""
import ast
import importlib.util
import pathlib

TOOL = pathlib.Path(__file__).parents[1] / "tools/make_stubs.py"


def test_stubs_are_current():
    spec = importlib.util.spec_from_file_location("make_stubs", TOOL)
    make_stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_stubs)
    count = 0
    for path, text in make_stubs.stubs():
        ast.parse(text)
        assert path.read_text() == text, f"{path.name} is not current: run python tools/make_stubs.py"
        count += 1
    assert count >= 8
