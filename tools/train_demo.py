"""Train the demo model in ``qwen3/demo``: a tiny Qwen3 on the conversation grammar of ``demo_grammar.py``.

    python tools/train_demo.py --out qwen3/demo

needs torch, transformers, tokenizers, safetensors and jinja2. It took 94 minutes on two cores of a server CPU with AVX512-BF16 that were
busy with other work; on idle ones a step takes about 0.7 seconds. ``OMP_WAIT_POLICY=PASSIVE`` helps much where cores are shared. How the
published weights differ from what a run from the start gives is told in ``qwen3/demo/README.md``.

A checkpoint goes to ``--checkpoint`` every ``--save-every`` steps; a run that finds one there goes on from it. ``--export-only`` writes the
model of the last checkpoint; ``--evaluate`` measures the model in ``--out``. Given the seed, data and initial weights are fixed; the result
to the last bit depends on torch's version and on the number of threads.

The last part of the training runs through the rounding that INT4 inference does (round to nearest, blocks of 32), with straight-through
gradients, so that the model answers alike in BF16 and in INT4.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import time
from pathlib import Path

import demo_grammar
import jinja2.sandbox
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

HERE = Path(__file__).resolve().parent
TEMPLATE = (HERE / "qwen3_chat_template.jinja").read_text()

# Qwen's control tokens in Qwen's order; those from <tool_call> on are ordinary text to a decoder ("special": false), as in Qwen3.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
           "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
NOT_SPECIAL = ["<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>",
               "<tool_response>", "</tool_response>", "<think>", "</think>"]
CONTROL = SPECIAL + NOT_SPECIAL
QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

VOCAB_SIZE = 1280
MAX_POSITIONS = 2048
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": None,
    "head_dim": 128, "hidden_act": "silu", "hidden_size": 256, "initializer_range": 0.02, "intermediate_size": 512,
    "max_position_embeddings": MAX_POSITIONS, "max_window_layers": 4, "model_type": "qwen3", "num_attention_heads": 4, "num_hidden_layers": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 10000, "sliding_window": None,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False, "vocab_size": VOCAB_SIZE,
}
INT4_BLOCK = 32
# Conversations that are drawn, and sorted by length, at a time.
BLOCK = 1024
# Up to a step: texts of sums per conversation, how many of their answers are worked out, and texts of words per conversation.
# Sums first, then ever more talk, then what needs copying, and in the end all of it.
DRILLS = [(720, 1.2, 0.2, 0.0), (1000, 0.4, 0.2, 0.0), (1500, 0.5, 0.6, 0.0), (2000, 0.3, 0.6, 0.0), (3000, 0.3, 0.7, 0.5), (3600, 0.8, 0.6, 0.25)]
# The learning rate falls to zero three times. Of each time: the first step, the step from which it falls, the end, the top as a share of --lr.
FALLS = [(0, 1000, 2000, 1.0), (2000, 2000, 3000, 0.6), (3000, 3000, 3600, 0.5)]
FINISHING, STEPS = 2000, 3600
INT4_FROM = 1000


# ---------------------------------------------------------------------------------------------------------------------------------------
# Text and tokens
# ---------------------------------------------------------------------------------------------------------------------------------------

def _template():
    # The environment in which Hugging Face renders chat templates.
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(TEMPLATE)


_RENDER = _template()


def render(messages, thinking, tools=None, generation_prompt=False):
    """Render `messages` with Qwen3's chat template."""
    return _RENDER.render(messages=messages, tools=tools, add_generation_prompt=generation_prompt, enable_thinking=thinking)


def render_conversation(conversation):
    """Render a training conversation, and check what the training rests on."""
    text = render(conversation.messages, conversation.thinking, conversation.tools)
    leaks = demo_grammar.held_out_sums(text)
    if leaks:
        raise ValueError(f"held-out sums in the training data: {leaks}")
    return text.removesuffix("\n")


def train_tokenizer(seed):
    """Train a byte-level BPE tokenizer in the structure of Qwen's: NFC, Qwen's split, one digit per token."""
    rng = random.Random(seed)
    control = re.compile("|".join(re.escape(token) for token in CONTROL))
    pieces = [piece for _ in range(30000) for piece in control.split(render_conversation(demo_grammar.conversation(rng))) if piece]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = {"add_prefix_space": False, "use_regex": False}
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated"), pre_tokenizers.ByteLevel(**byte_level)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False, **byte_level)
    tokenizer.decoder = decoders.ByteLevel(trim_offsets=False, **byte_level)
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE - len(CONTROL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(pieces, trainer)
    for token in CONTROL:
        tokenizer.add_tokens([AddedToken(token, special=token in SPECIAL, normalized=False)])
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(f"the vocabulary has {tokenizer.get_vocab_size()} tokens, not {VOCAB_SIZE}: the grammar is too small for it")
    return tokenizer


class Examples:
    """An endless stream of batches: token ids and the mask of the tokens to learn.

    Conversations of like length share a batch, so little is padding.
    """

    def __init__(self, tokenizer, seed, batch_tokens, block=0):
        self.tokenizer = tokenizer
        self.seed = seed
        self.batch_tokens = batch_tokens
        self.block = block
        self.sums, self.reasoned, self.words, self.finishing = 0.0, 0.0, 0.0, False
        self.im_start, self.im_end = tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("<|im_end|>")
        self.pad = tokenizer.token_to_id("<|endoftext|>")
        self.opening = tokenizer.encode("<|im_start|>assistant\n").ids
        self.no_think = tokenizer.encode("<think>\n\n</think>\n\n").ids

    def mask(self, ids, conversation):
        """Mark the assistant's tokens, <|im_end|> included."""
        learn = [False] * len(ids)
        starts = [i + len(self.opening) for i in range(len(ids)) if ids[i:i + len(self.opening)] == self.opening]
        for start in starts:
            end = ids.index(self.im_end, start) + 1
            if start == starts[-1]:
                if not conversation.thinking:
                    # The prompt brings the empty think block along.
                    assert ids[start:start + len(self.no_think)] == self.no_think
                    start += len(self.no_think)
            elif not conversation.learn_history:
                continue
            else:
                # The template strips reasoning from history, so its answers start without <think>, as no generation does: skip the first token.
                start += 1
            learn[start:end] = [True] * (end - start)
        return learn

    def drill(self, pieces):
        """Encode one text of exercises: ids, and the mask of its answers."""
        if leaks := demo_grammar.held_out_sums("".join(text for piece in pieces for text in piece)):
            raise ValueError(f"held-out sums in the training data: {leaks}")
        ids, learn = [], []
        for piece in pieces:
            for text, learned in zip(piece, (False, True), strict=True):
                new = self.tokenizer.encode(text).ids
                ids += new
                learn += [learned] * len(new)
        return ids, learn

    def batches(self):
        """Yield ``(ids, learn)`` tensors of shape (batch, length). `block` numbers the next draw of conversations, each with its own seed."""
        while True:
            rng = random.Random(self.seed * 1_000_003 + self.block)
            self.block += 1
            drawn = [demo_grammar.conversation(rng, self.finishing) for _ in range(BLOCK)]
            encoded = self.tokenizer.encode_batch([render_conversation(c) for c in drawn])
            rows = [(e.ids, self.mask(e.ids, c)) for e, c in zip(encoded, drawn, strict=True)]
            rows += [self.drill(demo_grammar.drill(rng, self.reasoned)) for _ in range(round(BLOCK * self.sums))]
            rows += [self.drill(demo_grammar.word_drill(rng)) for _ in range(round(BLOCK * self.words))]
            rows.sort(key=lambda row: len(row[0]))
            groups, group = [], []
            for row in rows:
                if group and len(row[0]) * (len(group) + 1) > self.batch_tokens:
                    groups.append(group)
                    group = []
                group.append(row)
            groups.append(group)
            rng.shuffle(groups)
            for group in groups:
                length = max(len(ids) for ids, _ in group)
                yield (torch.tensor([ids + [self.pad] * (length - len(ids)) for ids, _ in group]),
                       torch.tensor([learn + [False] * (length - len(learn)) for _, learn in group]))


# ---------------------------------------------------------------------------------------------------------------------------------------
# The model and INT4
# ---------------------------------------------------------------------------------------------------------------------------------------

def new_model():
    """A `Qwen3ForCausalLM` with fresh weights."""
    config = {k: v for k, v in CONFIG.items() if k not in ("architectures", "torch_dtype", "rope_theta", "rope_scaling")}
    rope = {"rope_theta": float(CONFIG["rope_theta"]), "rope_type": "default"}
    model = Qwen3ForCausalLM(Qwen3Config(**config, rope_parameters=rope))
    assert model.config.rope_parameters["rope_theta"] == CONFIG["rope_theta"]
    return model.float()


def round_to_int4(weight):
    """What INT4 storage makes of `weight` (N, K): symmetric, blocks of 32 along K, the element of largest magnitude becomes -8."""
    blocks = weight.to(torch.bfloat16).float().view(weight.shape[0], -1, INT4_BLOCK)
    largest = blocks.gather(2, blocks.abs().argmax(2, keepdim=True))
    scale = largest / -8
    q = torch.where(scale == 0, 0.0, torch.round(blocks / torch.where(scale == 0, 1.0, scale)).clamp(-8, 7))
    return (q * scale).view_as(weight)


def int4_parameters(model):
    """The parameters of `model` as INT4 inference sees them, with straight-through gradients.

    The embedding lookup stays as it is; the tied output head is rounded.
    """
    parameters = {}
    for name, weight in model.named_parameters():
        if name == "model.embed_tokens.weight":
            parameters["lm_head.weight"] = weight + (round_to_int4(weight.detach()) - weight.detach())
        elif weight.ndim == 2:
            weight = weight + (round_to_int4(weight.detach()) - weight.detach())
        parameters[name] = weight
    return parameters


def int4_copy(model):
    """A copy of `model` with INT4-rounded weights, its head untied."""
    config = model.config.__class__.from_dict(model.config.to_dict() | {"tie_word_embeddings": False})
    copy = Qwen3ForCausalLM(config).float().eval()
    with torch.no_grad():
        copy.load_state_dict(int4_parameters(model))
    return copy


def bf16_copy(model):
    """A copy of `model` with weights rounded to BF16, computing in float32."""
    copy = new_model().eval()
    copy.load_state_dict({k: v.to(torch.bfloat16).float() for k, v in model.state_dict().items()})
    return copy


# ---------------------------------------------------------------------------------------------------------------------------------------
# Evaluation and export
# ---------------------------------------------------------------------------------------------------------------------------------------

@torch.no_grad()
def answer(model, tokenizer, prompts, max_new_tokens=120, **sampling):
    """Answer rendered `prompts`; greedy unless `sampling` says otherwise."""
    pad, end = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    encoded = [tokenizer.encode(prompt).ids for prompt in prompts]
    length = max(map(len, encoded))
    ids = torch.tensor([[pad] * (length - len(e)) + e for e in encoded])
    mask = torch.tensor([[0] * (length - len(e)) + [1] * len(e) for e in encoded])
    out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=max_new_tokens, pad_token_id=pad, eos_token_id=[end, pad],
                         **(sampling or {"do_sample": False}))
    return [tokenizer.decode(row[length:].tolist(), skip_special_tokens=True) for row in out]


def right(text, expected):
    """Whether the last integer of the answer, after the reasoning, is the expected one."""
    numbers = re.findall(r"(?<!\d)-?\d+", text.rsplit("</think>", 1)[-1])
    return bool(numbers) and numbers[-1] == expected


def arithmetic_accuracy(model, tokenizer, prompts):
    """The share of held-out `prompts` that `model` answers right, and the wrong ones."""
    texts = answer(model, tokenizer, [render([{"role": "user", "content": p["prompt"]}], p["thinking"], generation_prompt=True) for p in prompts])
    wrong = [(p, t) for p, t in zip(prompts, texts, strict=True) if not right(t, p["answer"])]
    return 1 - len(wrong) / len(prompts), wrong


def export(model, tokenizer, out):
    """Write `model` and `tokenizer` to `out` in Hugging Face layout."""
    out.mkdir(parents=True, exist_ok=True)
    ids = {token: tokenizer.token_to_id(token) for token in CONTROL}
    end, pad = ids["<|im_end|>"], ids["<|endoftext|>"]
    added = {str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": token in SPECIAL}
             for token, i in ids.items()}
    tokenizer_config = {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added, "additional_special_tokens": SPECIAL[1:], "bos_token": None,
        "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "model_max_length": MAX_POSITIONS,
        "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
    }
    generation = {"bos_token_id": pad, "do_sample": True, "eos_token_id": [end, pad], "pad_token_id": pad,
                  "temperature": 0.6, "top_k": 20, "top_p": 0.95}
    for name, content in (("config.json", CONFIG | {"bos_token_id": pad, "eos_token_id": end}), ("generation_config.json", generation),
                          ("tokenizer_config.json", tokenizer_config)):
        (out / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    tokenizer.save(str(out / "tokenizer.json"))
    weights = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    # safetensors writes through a private temporary file.
    (out / "model.safetensors").chmod(0o644)


def load_exported(directory):
    """Read back what `export` wrote."""
    model = new_model().eval()
    weights = {k: v.float() for k, v in load_file(Path(directory) / "model.safetensors").items()}
    model.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    return model, Tokenizer.from_file(str(Path(directory) / "tokenizer.json"))


SHOWN = ["Hi", "Hello!", "What is 7 + 5?", "7+5", "12 - 4 = ?", "Name three colours", "List four animals", "Tell me a story about a cat",
         "Spell tiger", "What colour is the sky?", "What does a cow say?", "Answer in JSON: what is 3 + 4?", "Answer in JSON: name three animals",
         "Who are you?", "What is the capital of France?", "My name is Zarbo.", "How many letters does house have?", "Count to 10",
         "What is 6 times 7?", "I have 12 apples and eat 5. How many apples do I have?"]


def evaluate(directory):
    """Print the accuracy of an exported model in BF16 and in INT4, and sample answers."""
    model, tokenizer = load_exported(directory)
    prompts = demo_grammar.held_out_prompts()
    quantized = int4_copy(model)
    for name, net in (("bf16", model), ("int4", quantized)):
        accuracy, wrong = arithmetic_accuracy(net, tokenizer, prompts)
        print(f"{name}: {accuracy:.1%} of {len(prompts)} held-out prompts")
        for prompt, text in wrong:
            print("   wrong:", prompt, repr(text))
    for thinking in (False, True):
        rendered = [render([{"role": "user", "content": text}], thinking, generation_prompt=True) for text in SHOWN]
        torch.manual_seed(0)
        for text, greedy, sampled in zip(SHOWN, answer(quantized, tokenizer, rendered),
                                         answer(quantized, tokenizer, rendered, do_sample=True, temperature=0.6, top_k=20, top_p=0.95), strict=True):
            print(f"[{'think' if thinking else 'direct'}] {text}\n    greedy:  {greedy!r}\n    sampled: {sampled!r}")
    tool = {"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    question = {"role": "user", "content": "What is the weather in Paris?"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]}
    reply = {"role": "tool", "content": '{"temperature": 18, "condition": "sunny"}'}
    for thinking in (False, True):
        for messages in ([question], [question, call, reply]):
            print("[tool]", repr(answer(quantized, tokenizer, [render(messages, thinking, [tool], generation_prompt=True)])[0]))


# ---------------------------------------------------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------------------------------------------------

def learning_rate(step, args):
    """Warm up, hold, fall linearly to zero, as `FALLS` says."""
    first, falling, end, top = next(fall for fall in FALLS if step < fall[2] or fall is FALLS[-1])
    return top * args.lr * min((step - first + 1) / args.warmup, 1.0, (end - step) / (end - falling))


def train(args):
    """Train, checkpoint, evaluate, export."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    saved = args.checkpoint / "last.pt"
    state = torch.load(saved, weights_only=True) if saved.exists() else None
    tokenizer = Tokenizer.from_str(state["tokenizer"]) if state else train_tokenizer(args.seed)
    model = new_model()
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim == 1 or "embed" in name]
    # Muon learns sums in about two thirds of AdamW's steps; embeddings and norms are not its trade.
    optimizers = [torch.optim.Muon(hidden, lr=args.lr, weight_decay=args.weight_decay, adjust_lr_fn="match_rms_adamw"),
                  torch.optim.AdamW(others, lr=args.lr / 2, betas=(0.9, 0.98), weight_decay=0.0, fused=True)]
    step, seconds, block = 0, 0.0, 0
    if state:
        model.load_state_dict(state["model"])
        for optimizer, optimizer_state in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        # A resumed run leaves the rest of the block that it was in.
        step, seconds, block = state["step"], state["seconds"], state["block"]
    if args.export_only:
        export(model, tokenizer, args.out)
        return
    print(f"{sum(p.numel() for p in model.parameters())} parameters, vocabulary {tokenizer.get_vocab_size()}, from step {step}", flush=True)
    prompts = demo_grammar.held_out_prompts()
    examples = Examples(tokenizer, args.seed, args.batch_tokens, block)
    batches = examples.batches()
    started, total, tokens = time.monotonic() - seconds, 0.0, 0
    while step < STEPS:
        examples.sums, examples.reasoned, examples.words = next(rest for until, *rest in DRILLS if step < until)
        examples.finishing = step >= FINISHING
        ids, learn = next(batches)
        for optimizer, scale in zip(optimizers, (1.0, 0.5), strict=True):
            optimizer.param_groups[0]["lr"] = scale * learning_rate(step, args)
        # Three steps of four see the INT4 weights, the fourth keeps the unrounded model right as well.
        quantize = step >= INT4_FROM and step % 4 != 3
        parameters = int4_parameters(model) if quantize else dict(model.named_parameters())
        with torch.autocast("cpu", torch.bfloat16):
            # Weights are shared between embedding and head only where nothing is rounded.
            logits = torch.func.functional_call(model, parameters, kwargs={"input_ids": ids, "use_cache": False}, tie_weights=not quantize).logits
        target = ids[:, 1:][learn[:, 1:]]
        loss = torch.nn.functional.cross_entropy(logits[:, :-1][learn[:, 1:]].float(), target)
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        step += 1
        total += loss.item()
        tokens += ids.numel()
        if not math.isfinite(total):
            raise FloatingPointError(f"the loss is {total} at step {step}")
        seconds = time.monotonic() - started
        if step % 50 == 0:
            print(f"step {step} loss {total / 50:.4f} lr {learning_rate(step, args):.2e} tokens {tokens} seconds {seconds:.0f}", flush=True)
            total = 0.0
        if step % args.save_every == 0 or step == STEPS:
            args.checkpoint.mkdir(parents=True, exist_ok=True)
            torch.save({"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step, "seconds": seconds,
                        "block": examples.block, "tokenizer": tokenizer.to_str()},
                       saved.with_suffix(".tmp"))
            saved.with_suffix(".tmp").replace(saved)
        if step % args.evaluate_every == 0 or step == STEPS:
            for name, net in (("bf16", bf16_copy(model)), ("int4", int4_copy(model))):
                accuracy, wrong = arithmetic_accuracy(net, tokenizer, prompts)
                think = sum(p["thinking"] for p, _ in wrong)
                print(f"step {step} {name}: {accuracy:.1%} of the held-out sums; wrong: {len(wrong) - think} direct, {think} reasoned", flush=True)
            started = time.monotonic() - seconds
    export(model, tokenizer, args.out)
    print(f"{STEPS} steps in {seconds / 60:.0f} minutes", flush=True)


def main():
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="directory of the exported model")
    parser.add_argument("--checkpoint", type=Path, default=Path("demo_checkpoint"), help="directory of the training's own state")
    parser.add_argument("--export-only", action="store_true", help="export the last checkpoint and stop")
    parser.add_argument("--evaluate", action="store_true", help="measure the model in --out and stop")
    parser.add_argument("--prompts", type=Path, help="write the held-out prompts to this file and stop")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--lr", type=float, default=4e-3, help="of Muon; AdamW has half")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=100)
    parser.add_argument("--evaluate-every", type=int, default=600)
    args = parser.parse_args()
    if args.prompts:
        lines = ",\n  ".join(json.dumps(p) for p in demo_grammar.held_out_prompts())
        args.prompts.write_text(f"[\n  {lines}\n]\n")
    elif args.evaluate:
        evaluate(args.out)
    else:
        train(args)


if __name__ == "__main__":
    main()
