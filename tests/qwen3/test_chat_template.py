"""Chat templates: Qwen3's own against what Hugging Face renders, and the faults of others."""
import json

import pytest

import qwen3
from tests.qwen3.checkpoints import DATA, make_tokenizer

STORED = json.loads((DATA / "template_cases.json").read_text(encoding="utf-8"))
TEMPLATE = json.loads((DATA / "qwen3_tokenizer_config.json").read_text())["chat_template"]
HI = [{"role": "user", "content": "Hi"}]


def with_template(directory, source, file="tokenizer_config.json"):
    make_tokenizer(directory, template=False)
    if file.endswith(".jinja"):
        (directory / file).write_text(source, encoding="utf-8")
    else:
        settings = json.loads((directory / file).read_text()) if (directory / file).exists() else {}
        (directory / file).write_text(json.dumps(settings | {"chat_template": source}))
    return qwen3.Tokenizer(directory)


def test_there_are_enough_conversations():
    assert len(STORED["cases"]) >= 30


@pytest.mark.parametrize("case", STORED["cases"], ids=lambda case: case["name"])
def test_B72_equal_bytes(tiny_tokenizer, case):
    assert tiny_tokenizer.apply_chat_template(case["messages"], **case["options"]) == case["expected"]


def test_B72_thinking_switch(tiny_tokenizer):
    render = tiny_tokenizer.apply_chat_template
    assert render(HI).endswith("<|im_start|>assistant\n")
    assert render(HI, enable_thinking=True) == render(HI)
    assert render(HI, enable_thinking=False) == render(HI) + "<think>\n\n</think>\n\n"


def test_B73_old_reasoning_is_dropped(tiny_tokenizer):
    talk = [*HI, {"role": "assistant", "content": "<think>\na\n</think>\n\nb"}, {"role": "user", "content": "c"}]
    assert tiny_tokenizer.apply_chat_template(talk) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("message", [{"content": None}, {}, {"content": ""}])
def test_B75_null_content_beside_tool_calls(tiny_tokenizer, message):
    call = {"type": "function", "function": {"name": "f", "arguments": {"é": 1}}}
    talk = [*HI, {"role": "assistant", "tool_calls": [call]} | message, {"role": "tool", "content": "r"}]
    assert tiny_tokenizer.apply_chat_template(talk, add_generation_prompt=False) == (
        '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{"name": "f", "arguments": {"é": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n")


def test_B75_system_only_and_tool_last(tiny_tokenizer):
    render = tiny_tokenizer.apply_chat_template
    assert render([{"role": "system", "content": "s"}]) == "<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\n"
    assert render([{"role": "tool", "content": "t"}]) == (
        "<|im_start|>user\n<tool_response>\nt\n</tool_response><|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(("messages", "error", "match"), [
    ([], ValueError, "messages: expected at least one message, got an empty list"),
    ((), ValueError, "messages: expected at least one message"),
    ("Hi", TypeError, "messages: expected a list of dicts, got str"),
    (None, TypeError, "messages: expected a list of dicts, got NoneType"),
    (["Hi"], TypeError, r"messages\[0\]: expected a dict, got str"),
    ([*HI, {"content": "x"}], ValueError, r"messages\[1\]: role: expected one of system, user, assistant, tool, got None"),
    ([{"role": "developer", "content": "x"}], ValueError, r"messages\[0\]: role: .* got 'developer'"),
    ([{"role": "user", "content": None}], TypeError, r"messages\[0\]: content: expected a string, got None"),
    ([{"role": "user"}], TypeError, r"messages\[0\]: content: expected a string"),
    ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], TypeError, r"messages\[0\]: content: expected a string, got \["),
])
def test_B75_wrong_messages(tiny_tokenizer, messages, error, match):
    with pytest.raises(error, match=match):
        tiny_tokenizer.apply_chat_template(messages)


def test_wrong_tools(tiny_tokenizer):
    for tools in ("f", [print], {"name": "f"}):
        with pytest.raises(TypeError, match="tools: expected a list of JSON schemas as dicts"):
            tiny_tokenizer.apply_chat_template(HI, tools=tools)


def test_messages_are_not_changed(tiny_tokenizer):
    messages = [*HI, {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [{"name": "f", "arguments": {}}]}]
    before = json.dumps(messages)
    tiny_tokenizer.apply_chat_template(messages)
    assert json.dumps(messages) == before


@pytest.mark.parametrize(("source", "expected"), [
    ("{{ messages[::-1][0].content.split('i')[0] }}", "H"),
    ("{% for m in messages %}\n  {% if not m.content.startswith('x') %}\n{{ m.content.strip('H') }}\n  {% endif %}\n{% endfor %}", "i\n"),
    ("{%- set ns = namespace(n=0) %}{%- for m in messages %}{%- set ns.n = ns.n + 2 %}{%- endfor %}{{ ns.n }}", "2"),
    ("{{ {'é': '<&>'} | tojson }}", '{"é": "<&>"}'),
    ("{{ {'b': 1, 'a': [1, 2]} | tojson(indent=2) }}", '{\n  "b": 1,\n  "a": [\n    1,\n    2\n  ]\n}'),
    ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "013"),
    ("{% for m in messages %}{% generation %}{{ m.content }}{{ loop.index }}{% endgeneration %}{% endfor %}!", "Hi1!"),
    ("{{ bos_token is defined }} {{ eos_token }} {{ tools is none }} {{ add_generation_prompt }} {{ enable_thinking }}",
     "False <|im_end|> True True True"),
    ("{{ strftime_now('%Y') | length }}", "4"),
    ("{{ custom }}", "value"),
])
def test_B75_template_syntax(tmp_path, source, expected):
    assert with_template(tmp_path, source).apply_chat_template(HI, custom="value") == expected


@pytest.mark.parametrize(("source", "match"), [
    ("{{ raise_exception('no system please') }}", "no system please"),
    ("{{ messages[0].nothing.here }}", "nothing"),
    ("{% if %}", "Expected an expression"),
    ("{{ messages.__class__.__mro__ }}", "unsafe"),
    ("{{ messages.append(1) }}", "unsafe"),
    ("{{ 1 / 0 }}", "division by zero"),
    ("{{ messages[0] | tojson(indent=namespace) }}", "can't multiply sequence"),
])
def test_template_that_fails(tmp_path, source, match):
    with pytest.raises(ValueError, match=f"the template of .* failed: .*{match}"):
        with_template(tmp_path, source).apply_chat_template(HI)


def test_template_files(tmp_path):
    tokenizer = with_template(tmp_path / "jinja", "from jinja ü", "chat_template.jinja")
    assert tokenizer.apply_chat_template(HI) == "from jinja ü"
    tokenizer = with_template(tmp_path / "jinja", "from settings")
    (tmp_path / "jinja/chat_template.jinja").write_text("from jinja")
    assert tokenizer.apply_chat_template(HI) == "from jinja"
    assert with_template(tmp_path / "json", "from json", "chat_template.json").apply_chat_template(HI) == "from json"
    named = with_template(tmp_path / "named", [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}])
    assert named.apply_chat_template(HI) == "plain"
    assert named.apply_chat_template(HI, tools=[{"name": "f"}]) == "tools"
    with pytest.raises(qwen3.ConfigError, match="no chat template in chat_template.jinja, tokenizer_config.json or chat_template.json"):
        qwen3.Tokenizer(make_tokenizer(tmp_path / "none", template=False)).apply_chat_template(HI)


def test_the_demo_model_has_qwen3s_template():
    tokenizer = qwen3.Tokenizer(qwen3.resolve())
    for case in STORED["cases"]:
        assert tokenizer.apply_chat_template(case["messages"], **case["options"]) == case["expected"]
