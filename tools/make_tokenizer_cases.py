#!/usr/bin/env python3
"""Store the token ids that Hugging Face transformers gives for a mixed corpus with Qwen3's own tokenizer.

    python tools/make_tokenizer_cases.py TOKENIZER_DIRECTORY

writes tests/qwen3/data/tokenizer_cases.json. Needs transformers; the tokenizer is that of any Qwen3 of 2025-04.
"""
import argparse
import json
import pathlib

import transformers

OUT = pathlib.Path(__file__).parents[1] / "tests/qwen3/data/tokenizer_cases.json"

CORPUS = [
    "", " ", "  x", "   ", "a  b   c    d", "\n", "\n\n\n", " \n x", "\t\tx\t", "line\r\nline\r\n\r\nend", "trailing \n ", "123",
    "1234567.89", "v2.13.0-rc1", "x.<|im_end|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "a<|endoftext|>b", "<think>x</think>y", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "<|im_end", "<|im_end|",
    "<|notatoken|>", " <|im_end|> ", "e\u0301", "\u00e9", "A\u030a \u212b", "\u1112\u1161\u11ab", "ﬁ ½ ²", "n\u0303o",
    "\u0915\u094d\u0937\u093f", "\u0e01\u0e33", "a\u0300\u0301\u0302", "\u3000x\u3000", "\u00a0nbsp\u2003em\u200bzero", "\ufeffbom",
    "it's we'll I'M they'd YOU'RE ſ's", "don’t", "Hello, world!", "HTTP://Example.com/?a=b&c=d#e",
    "def f(x: int) -> int:\n    return x**2  # square\n\n\nclass A:\n\tpass\n", "{\"a\": [1, 2.5e-3, null], \"b\": {\"c\": \"d\\n\"}}",
    "你好，世界。今天天气怎么样？", "日本語のテキストと、カタカナ・ひらがな。", "한국어 텍스트입니다.", "Привет, мир! Ёлка.",
    "مرحبا بالعالم", "שָׁלוֹם עולם", "Γειά σου Κόσμε", "नमस्ते दुनिया", "สวัสดีชาวโลก", "Tiếng Việt có dấu",
    "Straße, naïve façade, œuvre, Ångström", "İstanbul ıssız", "😀😃 👩‍👩‍👧‍👦 🇨🇭 👍🏽", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎", "∑∫√∞ ≤≥ → ⇒ ∀x∈ℝ",
    "$\\int_0^1 x^2 \\, dx = \\frac{1}{3}$", "###### ------ ****** ======", "!!!???...,,,;;;", "\x00\x01\x7f",
    "\ud7ff\ue000\ufffd\U0010ffff", "a" * 300, "ab" * 100 + " " * 50, "0x1F 1e10 1_000 ½ ٣٤ Ⅷ ①",
    "MixedCASE camelCase snake_case kebab-case", "“quotes” ‘single’ «guillemets» „low“", "C'était l'été; qu'est-ce?", "\r", "a\rb",
    "x \r\n\t y",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=pathlib.Path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(parser.parse_args().tokenizer)
    cases = []
    for text in CORPUS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids), "plain": tokenizer.decode(ids, skip_special_tokens=True)})
    with OUT.open("w", encoding="utf-8") as file:
        file.write(f'{{"transformers": "{transformers.__version__}", "cases": [\n')
        file.write(",\n".join(json.dumps(case) for case in cases) + "\n]}\n")
    print(f"{len(cases)} texts: {OUT}")


if __name__ == "__main__":
    main()
