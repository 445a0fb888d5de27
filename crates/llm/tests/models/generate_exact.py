"""Writes the fixtures of parts that the models of `generate.py` do not have: logits are computed here in 64 bits.

    pip install numpy gguf
    python3 generate_exact.py [NAME ...]

The code shares nothing with a runtime: it follows the papers of YaRN (https://arxiv.org/abs/2309.00071) and Gemma 2
(https://arxiv.org/abs/2408.00118), with llama.cpp's names of keys and tensors.
"""

import json
import sys

import numpy

from generate import HERE, TOKENS, gemma, llama, weights, yarn

MODELS = {
    # Every key of YaRN, and two periods of what it turns.
    "llama-yarn-keys": yarn(llama(key=16).feed_forward(64)).set(
        rope__scaling__yarn_ext_factor=0.75,
        rope__scaling__yarn_beta_fast=4.0,
        rope__scaling__yarn_beta_slow=0.5,
        rope__scaling__attn_factor=1.25,
        rope__freq_base=500.0,
    ),
    # With as many layers as the model of 27 billion weights, scores are scaled by the width and the heads.
    "gemma2-deep": gemma("gemma2", 46)
    .post_norms()
    .set(attention__sliding_window=6, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
}


class Exact:
    """A model in 64 bits."""

    def __init__(self, model):
        self.model, self.gemma = model, model.architecture == "gemma2"
        self.tensors = {tensor[0]: weights(*tensor).astype(numpy.float64) for tensor in model.tensors}

    def key(self, name, default=None):
        return self.model.keys.get(f"{self.model.architecture}.{name}", default)

    def linear(self, stem, x):
        return x @ self.tensors[f"{stem}.weight"].T

    def norm(self, stem, x):
        if f"{stem}.weight" not in self.tensors:
            return x
        x = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + self.key("attention.layer_norm_rms_epsilon"))
        return x * self.tensors[f"{stem}.weight"]

    def angles(self, tokens, size):
        """Angles of each position and pair, and the factor of what is turned."""
        base, pairs = self.key("rope.freq_base", 10000.0), numpy.arange(size // 2)
        positions = numpy.arange(tokens)[:, None]
        far = positions * base ** (-2.0 * pairs / size)
        factor = self.key("rope.scaling.factor")
        if factor is None:
            return far, 1.0
        original = self.key("rope.scaling.original_context_length")
        # The pair that turns so many times in the original context.
        turns = lambda times: size * numpy.log(original / (2 * numpy.pi * times)) / (2 * numpy.log(base))
        fast, slow = (self.key(f"rope.scaling.yarn_beta_{which}") for which in ("fast", "slow"))
        first, last = max(0, numpy.floor(turns(fast))), min(size - 1, numpy.ceil(turns(slow)))
        ramp = numpy.clip((pairs - first) / max(0.001, last - first), 0, 1)
        kept = (1 - ramp) * self.key("rope.scaling.yarn_ext_factor")
        size_factor = self.key("rope.scaling.attn_factor") * (1 + 0.1 * numpy.log(factor))
        return far / factor * (1 - kept) + far * kept, size_factor

    def turned(self, x):
        angles, factor = self.angles(len(x), x.shape[-1])
        cos, sin = factor * numpy.cos(angles)[:, None], factor * numpy.sin(angles)[:, None]
        half = x.shape[-1] // 2
        a, b = (x[..., :half], x[..., half:]) if self.gemma else (x[..., ::2], x[..., 1::2])
        a, b = a * cos - b * sin, a * sin + b * cos
        if self.gemma:
            return numpy.concatenate([a, b], -1)
        return numpy.stack([a, b], -1).reshape(x.shape)

    def attention(self, layer, x):
        blk, tokens, heads = f"blk.{layer}", len(x), self.key("attention.head_count")
        size = self.key("attention.key_length", self.model.width // heads)
        q, k, v = (self.linear(f"{blk}.attn_{part}", x).reshape(tokens, -1, size) for part in "qkv")
        q, k = self.turned(q), self.turned(k)
        k, v = (numpy.repeat(part, heads // part.shape[1], 1) for part in (k, v))
        scale = self.model.width / heads if self.gemma and self.model.layers == 46 else size
        scores = numpy.einsum("qhd,khd->hqk", q, k) / scale**0.5
        cap, window = self.key("attn_logit_softcapping"), self.key("attention.sliding_window")
        if cap:
            scores = cap * numpy.tanh(scores / cap)
        age = numpy.arange(tokens)[:, None] - numpy.arange(tokens)
        # Every second layer sees everything.
        seen = window if window and layer % 2 == 0 else tokens
        scores[:, (age < 0) | (age >= seen)] = -numpy.inf
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        x = numpy.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(tokens, -1)
        return self.linear(f"{blk}.attn_output", x)

    def gate(self, x):
        if self.gemma:
            return 0.5 * x * (1.0 + numpy.tanh(numpy.sqrt(2.0 / numpy.pi) * (x + 0.044715 * x**3)))
        return x / (1.0 + numpy.exp(-x))

    def logits(self, tokens):
        table = self.tensors["token_embd.weight"]
        x = table[tokens] * (self.model.width**0.5 if self.gemma else 1.0)
        for layer in range(self.model.layers):
            blk = f"blk.{layer}"
            mixed = self.attention(layer, self.norm(f"{blk}.attn_norm", x))
            x = x + self.norm(f"{blk}.post_attention_norm", mixed)
            y = self.norm(f"{blk}.ffn_norm", x)
            fed = self.gate(self.linear(f"{blk}.ffn_gate", y)) * self.linear(f"{blk}.ffn_up", y)
            x = x + self.norm(f"{blk}.post_ffw_norm", self.linear(f"{blk}.ffn_down", fed))
        x = self.norm("output_norm", x) @ table.T
        cap = self.key("final_logit_softcapping")
        return cap * numpy.tanh(x / cap) if cap else x


def main(chosen):
    for name in chosen or MODELS:
        model = MODELS[name]
        tokens = [(7 * index * index + 3 * index + 1) % model.vocabulary for index in range(TOKENS)]
        rows = [[float(f"{x:.7g}") for x in row] for row in Exact(model).logits(tokens)]
        fixture = {"keys": model.keys, "tensors": model.tensors, "tokens": tokens, "logits": rows}
        (HERE / f"{name}.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
