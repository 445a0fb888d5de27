"""Writes the fixtures of models that make embeddings: tiny random models, some texts, and what stands for each of them.

    pip install numpy gguf
    python3 generate_encoders.py [--check PROGRAM] [NAME ...]

The rows are computed here in 64 bits, because llama.cpp looks GELU up in a table of 16-bit numbers, and takes its tanh
approximation where the models have the error function. PROGRAM, if one is given, is called with a model's file, the pooling and
texts as lists of token ids, and prints llama.cpp's rows as JSON; models without GELU have to agree to 1e-5.
"""

import json
import math
import subprocess
import sys
import tempfile

import numpy

from generate import HERE, Model, gemma3, weights, write_model

TEXTS = [17, 1, 9, 30, 4]
POOLINGS = {"mean": 1, "cls": 2, "last": 3, "rank": 4}


def encoder(architecture, layers=2, **more):
    model = Model(architecture, layers, context=40, width=32, vocabulary=24)
    model.tensors = model.tensors[:1]
    # Embeddings are normed.
    model.norm("token_embd_norm", 32, bias=more.get("bias", True))
    model.keys["tokenizer.ggml.token_type_count"] = 2
    return model.mean().set(attention__causal=False)


def sums(model, types=True, bias=True):
    """Norms behind the sums, and what else BERT's relatives have."""
    if types:
        model.matrix("token_types.weight", model.width, 2)
    for layer in range(model.layers):
        model.norm(f"blk.{layer}.attn_output_norm", model.width, bias=True)
        model.norm(f"blk.{layer}.layer_output_norm", model.width, bias=True)
    return model


def head(model, labels, dense=True, normed=False, bias=True):
    """A classifier."""
    if dense:
        model.linear("cls", model.width, model.width, bias)
    if normed:
        model.norm("cls.norm", model.width)
    model.linear("cls.output", model.width, labels, bias)
    if labels > 1:
        model.set(classifier__output_labels=["yes", "no"])
    return model.set(pooling_type=4)


def bert(**more):
    model = sums(encoder("bert")).heads(4, 4, 8, bias=True, output_bias=True, norm=None)
    model.feed_forward(64, bias=True, kind="squared", norm=None)
    model.tensor("position_embd.weight", [32, 40], 0.0, 0.2)
    return model.set(pooling_type=2, **more)


def jina(kind):
    model = sums(encoder("jina-bert-v2")).heads(4, 4, 8, bias=True, output_bias=True, norm=None)
    model.feed_forward(48, kind=kind, norm=None)
    for layer in range(2):
        model.tensor(f"blk.{layer}.ffn_down.bias", [32], 0.0, 0.2)
        if kind == "fused":
            model.norm(f"blk.{layer}.attn_norm_2", 32, bias=True)
        else:
            model.norm(f"blk.{layer}.attn_q_norm", 32, bias=True)
            model.norm(f"blk.{layer}.attn_k_norm", 32, bias=True)
    return model.set(pooling_type=1)


def modern_bert(layers=7, **keys):
    model = encoder("modern-bert", layers, bias=False).heads(4, 4, 8, fused=True)
    model.tensors = [tensor for tensor in model.tensors if tensor[0] != "blk.0.attn_norm.weight"]
    model.feed_forward(48, kind="fused").norm("output_norm", 32)
    return model.set(pooling_type=2, attention__sliding_window=8, rope__freq_base=160000.0, **keys)


def gemma_embedding():
    model = gemma3(12, attention__sliding_window=6, pooling_type=1)
    model.architecture = "gemma-embedding"
    model.keys = {key.replace("gemma3.", "gemma-embedding."): value for key, value in model.keys.items()}
    model.keys["general.architecture"] = "gemma-embedding"
    model.matrix("dense_2.weight", model.width, 96)
    model.matrix("dense_3.weight", 96, model.width)
    model.set(dense_2_feat_in=model.width, dense_2_feat_out=96)
    return model.set(dense_3_feat_in=96, dense_3_feat_out=model.width)


def qwen3(pooling):
    model = Model("qwen3", 2, context=40).rms(1e-6).heads(4, 2, 16, normed="each").feed_forward(72)
    return model.set(pooling_type=pooling, rope__freq_base=1e6)


MODELS = {
    "bert": bert(),
    "bert-rank": head(bert(), 1),
    "nomic-bert": sums(encoder("nomic-bert")).heads(4, 4, 8, fused=True, norm=None)
    .feed_forward(48, norm=None)
    .set(pooling_type=1, rope__freq_base=1000.0),
    "jina-bert-v2": jina("gated"),
    "jina-bert-v2-fused": jina("fused"),
    "jina-bert-v2-plain": jina("squared"),
    "modern-bert": modern_bert(rope__freq_base_swa=10000.0),
    "modern-bert-silu": modern_bert(4, hidden_activation="silu"),
    "modern-bert-rank": head(modern_bert(4), 1, normed=True, bias=False),
    "gemma-embedding": gemma_embedding(),
    "qwen3-embedding": qwen3(3),
    "qwen3-rank": head(qwen3(4), 2, dense=False, bias=False),
}
ROUNDED = [name for name in MODELS if name.split("-")[0] not in ["nomic", "qwen3"]]


class Exact:
    """A model in 64 bits."""

    def __init__(self, model):
        self.model, self.name = model, model.architecture
        self.tensors = {tensor[0]: weights(*tensor).astype(numpy.float64) for tensor in model.tensors}
        self.causal, self.gemma = self.name == "qwen3", self.name == "gemma-embedding"

    def key(self, name, default=None):
        return self.model.keys.get(f"{self.name}.{name}", default)

    def has(self, stem):
        return f"{stem}.weight" in self.tensors

    def linear(self, stem, x):
        return x @ self.tensors[f"{stem}.weight"].T + self.tensors.get(f"{stem}.bias", 0.0)

    def norm(self, stem, x, optional=False):
        if optional and not self.has(stem):
            return x
        if self.causal or self.gemma:
            epsilon = self.key("attention.layer_norm_rms_epsilon")
        else:
            x, epsilon = x - x.mean(-1, keepdims=True), self.key("attention.layer_norm_epsilon")
        x = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
        return x * self.tensors[f"{stem}.weight"] + self.tensors.get(f"{stem}.bias", 0.0)

    def gelu(self, x):
        if self.gemma:
            return 0.5 * x * (1.0 + numpy.tanh(numpy.sqrt(2.0 / numpy.pi) * (x + 0.044715 * x**3)))
        return 0.5 * x * (1.0 + numpy.vectorize(math.erf)(x / 2**0.5))

    @staticmethod
    def silu(x):
        return x / (1.0 + numpy.exp(-x))

    @staticmethod
    def turned(x, base):
        half = x.shape[-1] // 2
        angles = numpy.arange(len(x))[:, None] * base ** (-numpy.arange(half) / half)
        cos, sin = numpy.cos(angles)[:, None], numpy.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half:]
        return numpy.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def window(self, layer):
        """The window of a layer, if it has one."""
        window = self.key("attention.sliding_window")
        if window is None:
            return None
        full = layer % 3 == 0 if self.name == "modern-bert" else layer % 6 == 5
        return None if full else window

    def attention(self, layer, x):
        blk, tokens = f"blk.{layer}", len(x)
        heads = self.key("attention.head_count")
        size = self.key("attention.key_length", self.model.width // heads)
        if self.has(f"{blk}.attn_qkv"):
            q, k, v = numpy.split(self.linear(f"{blk}.attn_qkv", x), 3, -1)
        else:
            q, k, v = (self.linear(f"{blk}.attn_{part}", x) for part in "qkv")
        if self.name == "jina-bert-v2":
            q, k = (self.norm(f"{blk}.attn_{part}_norm", x, optional=True) for part, x in (("q", q), ("k", k)))
        q, k, v = (part.reshape(tokens, -1, size) for part in (q, k, v))
        if self.causal or self.gemma:
            q, k = (self.norm(f"{blk}.attn_{part}_norm", x) for part, x in (("q", q), ("k", k)))
        window = self.window(layer)
        if self.name not in ["bert", "jina-bert-v2"]:
            base = self.key("rope.freq_base")
            if window:
                base = self.key("rope.freq_base_swa", 10000.0)
            q, k = self.turned(q, base), self.turned(k, base)
        k, v = (numpy.repeat(part, heads // part.shape[1], 1) for part in (k, v))
        scores = numpy.einsum("qhd,khd->hqk", q, k) / size**0.5
        distance = numpy.arange(tokens)[:, None] - numpy.arange(tokens)
        if self.name == "jina-bert-v2":
            # Slopes for a number of heads that is a power of two.
            scores -= 2.0 ** (-8.0 * (numpy.arange(heads)[:, None, None] + 1) / heads) * abs(distance)
        if self.causal:
            scores[:, distance < 0] = -numpy.inf
        if window:
            scores[:, abs(distance) > window // 2] = -numpy.inf
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        x = numpy.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(tokens, -1)
        return self.linear(f"{blk}.attn_output", x)

    def feed_forward(self, layer, x):
        blk = f"blk.{layer}.ffn"
        silu = self.name in ["nomic-bert", "qwen3"] or self.key("hidden_activation") == "silu"
        act = self.silu if silu else self.gelu
        up = self.linear(f"{blk}_up", x)
        if self.has(f"{blk}_gate"):
            up = act(self.linear(f"{blk}_gate", x)) * up
        elif up.shape[-1] == self.key("feed_forward_length"):
            up = act(up)
        else:
            gate, up = numpy.split(up, 2, -1)
            up = act(gate) * up
        return self.linear(f"{blk}_down", up)

    def layer(self, layer, x):
        blk = f"blk.{layer}"
        if not self.has(f"{blk}.attn_output_norm"):
            mixed = self.attention(layer, self.norm(f"{blk}.attn_norm", x, optional=layer == 0))
            x = x + self.norm(f"{blk}.post_attention_norm", mixed, optional=True)
            fed = self.feed_forward(layer, self.norm(f"{blk}.ffn_norm", x))
            return x + self.norm(f"{blk}.post_ffw_norm", fed, optional=True)
        y = self.norm(f"{blk}.attn_output_norm", x + self.attention(layer, x))
        if self.has(f"{blk}.attn_norm_2"):
            y = self.norm(f"{blk}.attn_norm_2", y + x)
        return self.norm(f"{blk}.layer_output_norm", y + self.feed_forward(layer, y))

    def row(self, tokens):
        """What stands for a text."""
        x = self.tensors["token_embd.weight"][tokens]
        if self.gemma:
            x = x * self.model.width**0.5
        if self.has("token_types"):
            x = x + self.tensors["token_types.weight"][0]
        if self.has("position_embd"):
            x = x + self.tensors["position_embd.weight"][: len(tokens)]
        x = self.norm("token_embd_norm", x, optional=True)
        for layer in range(self.model.layers):
            x = self.layer(layer, x)
        x = self.norm("output_norm", x, optional=True)
        pooling, modern = self.key("pooling_type"), self.name == "modern-bert"
        if pooling == 1 or pooling == 4 and modern:
            x = x.mean(0)
        else:
            x = x[-1] if pooling == 3 or self.causal else x[0]
        if pooling != 4:
            for stem in ["dense_2", "dense_3"]:
                x = self.linear(stem, x) if self.has(stem) else x
            return x / numpy.sqrt((x * x).sum())
        if self.has("cls"):
            x = self.linear("cls", x)
            x = self.norm("cls.norm", self.gelu(x) if modern else numpy.tanh(x), optional=True)
        x = self.linear("cls.output", x)
        return numpy.exp(x) / numpy.exp(x).sum() if self.causal else x


def compared(program, name, model, texts, rows):
    """Compares with llama.cpp's rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{name}.gguf"
        write_model(path, model)
        lists = [",".join(map(str, text)) for text in texts]
        answer = subprocess.run([program, path, *lists], check=True, capture_output=True, text=True)
    found = numpy.array(json.loads(answer.stdout))[:, : rows.shape[1]]
    if model.keys[f"{model.architecture}.pooling_type"] != 4:
        found /= numpy.sqrt((found * found).sum(-1, keepdims=True))
    error = numpy.linalg.norm(found - rows) / numpy.linalg.norm(rows)
    print(f"{name}: llama.cpp is {error:.1e} off")
    assert error < (2e-2 if name in ROUNDED else 1e-5), error


def main(arguments):
    program = None
    if arguments[:1] == ["--check"]:
        program, arguments = arguments[1], arguments[2:]
    for name in arguments or MODELS:
        model = MODELS[name]
        texts = [[(7 * i * i + 3 * i + 5 * length) % model.vocabulary for i in range(length)] for length in TEXTS]
        rows = numpy.array([Exact(model).row(text) for text in texts])
        if program:
            compared(program, name, model, texts, rows)
        rows = [[float(f"{x:.8g}") for x in row] for row in rows]
        fixture = {"keys": model.keys, "tensors": model.tensors, "texts": texts, "rows": rows}
        (HERE / f"{name}.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
