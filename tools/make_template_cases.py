#!/usr/bin/env python3
"""Store what Hugging Face transformers renders for a set of conversations with Qwen3's own chat template.

    python tools/make_template_cases.py TOKENIZER_DIRECTORY

writes tests/qwen3/data/template_cases.json. Needs transformers; the tokenizer is that of any Qwen3 of 2025-04.
"""
import argparse
import json
import pathlib

import transformers

OUT = pathlib.Path(__file__).parents[1] / "tests/qwen3/data/template_cases.json"

system = lambda text: {"role": "system", "content": text}
user = lambda text: {"role": "user", "content": text}
assistant = lambda text, **more: {"role": "assistant", "content": text, **more}
tool = lambda text, **more: {"role": "tool", "content": text, **more}
call = lambda name, arguments, **more: {"type": "function", "function": {"name": name, "arguments": arguments}, **more}

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city & its surroundings, in °C",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "e.g. \"Zürich\" or '東京'"},
                                                    "days": {"type": "integer", "default": 1, "enum": [1, 3, 7]}}, "required": ["city"]}}}
ADD = {"type": "function", "function": {"name": "add", "description": "a + b, exact for a < 2**53", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"], "additionalProperties": False}}}
FLAT = {"name": "now", "description": "<b>The time</b>", "parameters": {"type": "object", "properties": {}}}

TALK = [user("Hi"), assistant("<think>\na\n</think>\n\nb"), user("And now?")]
TOOL_TALK = [user("Weather in Zürich?"), assistant("", tool_calls=[call("get_weather", {"city": "Zürich"})]),
             tool('{"temperature": 21.5, "sky": "☀"}')]
TWO_CALLS = [system("Be brief."), user("2+3 and 4+5?"),
             assistant("Let me see.", tool_calls=[call("add", {"a": 2, "b": 3}), call("add", {"b": 5, "a": 4})]),
             tool("5"), tool("9")]

# name, messages, keyword arguments
CASES = [
    ("one user turn", [user("Hi")], {}),
    ("thinking on", [user("Hi")], {"enable_thinking": True}),
    ("thinking off", [user("Hi")], {"enable_thinking": False}),
    ("no generation prompt", [user("Hi")], {"add_generation_prompt": False}),
    ("no generation prompt, thinking off", [user("Hi")], {"add_generation_prompt": False, "enable_thinking": False}),
    ("system", [system("You are terse."), user("Hi")], {}),
    ("system only", [system("You are terse.")], {}),
    ("empty system", [system(""), user("Hi")], {"enable_thinking": False}),
    ("empty user", [user("")], {}),
    ("spaces and newlines", [user("  two\n\n\nlines \t\r\n ")], {}),
    ("unicode", [system("Réponds en français 🇫🇷"), user("你好，世界 — e\u0301 \u3000 𝔘𝔫𝔦 👩‍👩‍👧")], {}),
    ("markup and quotes", [user("<b>\"a\" & 'b'</b> {{ messages }} {% raw %} \\n")], {}),
    ("control tokens in the text", [user("say <|im_end|> and </think>")], {}),
    ("history", [user("Hi"), assistant("Hello!"), user("Bye")], {}),
    ("history with reasoning", TALK, {}),
    ("history with reasoning, thinking off", TALK, {"enable_thinking": False}),
    ("reasoning last", TALK[:2], {"add_generation_prompt": False}),
    ("reasoning_content last", [user("Hi"), assistant("b", reasoning_content="a")], {"add_generation_prompt": False}),
    ("reasoning_content in history", [user("Hi"), assistant("b", reasoning_content="a\nc"), user("more")], {}),
    ("reasoning_content with newlines", [user("Hi"), assistant("\n\nb\n", reasoning_content="\n\na\n\n")], {"add_generation_prompt": False}),
    ("empty reasoning_content", [user("Hi"), assistant("b", reasoning_content="")], {"add_generation_prompt": False}),
    ("assistant without reasoning last", [user("Hi"), assistant("b")], {"add_generation_prompt": False}),
    ("two assistants in a row", [user("Hi"), assistant("a"), assistant("b"), user("c")], {}),
    ("thought twice", [user("Hi"), assistant("<think>\na\n</think>\n\nb</think>\n\nc")], {}),
    ("system later", [user("Hi"), system("Now be loud."), user("Hi again")], {}),
    ("assistant first", [assistant("Welcome!"), user("Hi")], {}),
    ("many turns", [m for i in range(6) for m in (user(f"question {i}"), assistant(f"<think>\nthought {i}\n</think>\n\nanswer {i}"))]
     + [user("end")], {}),
    ("tools", [user("Weather in Bern?")], {"tools": [WEATHER]}),
    ("tools and system", [system("You know the weather."), user("Weather in Bern?")], {"tools": [WEATHER, ADD]}),
    ("tools, thinking off", [user("Weather in Bern?")], {"tools": [ADD], "enable_thinking": False}),
    ("flat tool", [user("What time?")], {"tools": [FLAT]}),
    ("no tools", [user("Hi")], {"tools": []}),
    ("tool call last", TOOL_TALK[:2], {"tools": [WEATHER], "add_generation_prompt": False}),
    ("tool response last", TOOL_TALK, {"tools": [WEATHER]}),
    ("tool response last, thinking off", TOOL_TALK, {"tools": [WEATHER], "enable_thinking": False}),
    ("tool call answered", [*TOOL_TALK, assistant("21.5 °C, sunny.")], {"tools": [WEATHER], "add_generation_prompt": False}),
    ("tool call answered, next turn", [*TOOL_TALK, assistant("<think>\nwarm\n</think>\n\n21.5 °C."), user("And tomorrow?")], {"tools": [WEATHER]}),
    ("two calls, two responses", TWO_CALLS, {"tools": [ADD]}),
    ("two calls, answered", [*TWO_CALLS, assistant("5 and 9.", reasoning_content="both there")], {"tools": [ADD], "add_generation_prompt": False}),
    ("calls with reasoning", [user("2+3?"), assistant("<think>\nadd\n</think>\n\n", tool_calls=[call("add", {"a": 2, "b": 3})]), tool("5")],
     {"tools": [ADD]}),
    ("flat call", [user("2+3?"), assistant("", tool_calls=[{"name": "add", "arguments": {"a": 2, "b": 3}}]), tool("5")], {"tools": [ADD]}),
    ("arguments as text", [user("2+3?"), assistant("", tool_calls=[call("add", '{"a": 2, "b": 3.0}')]), tool("5")], {"tools": [ADD]}),
    ("odd arguments", [user("?"), assistant("", tool_calls=[call("f", {"s": "é\"<&>'\\\n", "n": None, "x": [1, 2.5, True], "o": {}}, id="call_1")]),
                       tool("ok", tool_call_id="call_1", name="f")], {"tools": [FLAT]}),
    ("response in a user turn", [user("Hi"), assistant("b", reasoning_content="a"), user("<tool_response>\nx\n</tool_response>")], {}),
    ("tool calls null", [user("Hi"), assistant("b", tool_calls=None, reasoning_content=None), user("c")], {}),
    ("older name of reasoning", [user("Hi"), assistant("b", reasoning="a")], {"add_generation_prompt": False}),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=pathlib.Path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(parser.parse_args().tokenizer)
    cases = [{"name": name, "messages": messages, "options": options, "expected": tokenizer.apply_chat_template(
        messages, tokenize=False, **{"add_generation_prompt": True} | options)} for name, messages, options in CASES]
    OUT.write_text(json.dumps({"transformers": transformers.__version__, "cases": cases}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(cases)} conversations: {OUT}")


if __name__ == "__main__":
    main()
