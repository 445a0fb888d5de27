"""Writes the fixtures of the architecture tests: tiny random models, and the logits that llama.cpp gives for them.

    pip install numpy gguf
    cargo xtask bench peers          # among other things, builds the program below, which links llama.cpp
    python3 generate.py TARGET/peers/target/release/peers

A fixture holds a model's keys, the names and sizes of its tensors, some tokens and their logits. The weights are not
in it: they follow from the tensors' names, here and in `arches.rs`.

llama.cpp looks GELU up in a table of 16-bit numbers. The logits of models with it are computed here in 64 bits, and
llama.cpp's have to be close.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy

HERE = pathlib.Path(__file__).parent / "fixtures"
WIDTH, VOCABULARY, TOKENS = 48, 80, 30
MASK = (1 << 64) - 1


def weights(name, extents, mean, deviation):
    """Uniform values around the mean: a hash of the name and of each element's place."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & MASK
    count = int(numpy.prod(extents))
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    unit = (z >> numpy.uint64(40)).astype(numpy.float64) / float(1 << 24)
    values = mean + deviation * (unit - 0.5) * 3.5
    return values.astype(numpy.float32).reshape(extents[::-1])


class Model:
    """Keys and tensors of a model in the making."""

    def __init__(self, architecture, layers, context=64, width=WIDTH):
        self.architecture, self.layers, self.width = architecture, layers, width
        self.keys = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
        self.tensors = []
        self.set(vocab_size=VOCABULARY, context_length=context, embedding_length=width, block_count=layers)
        self.matrix("token_embd.weight", width, VOCABULARY)
        self.norm("output_norm", width)

    def set(self, **keys):
        for key, value in keys.items():
            self.keys[f"{self.architecture}.{key.replace('__', '.')}"] = value
        return self

    def tensor(self, name, extents, mean, deviation):
        self.tensors.append([name, list(extents), mean, deviation])

    def matrix(self, name, *extents):
        self.tensor(name, extents, 0.0, 1.0 / extents[0] ** 0.5)

    def linear(self, stem, rows, columns, bias=False):
        self.matrix(f"{stem}.weight", rows, columns)
        if bias:
            self.tensor(f"{stem}.bias", [columns], 0.0, 0.2)

    def norm(self, stem, width, bias=False):
        self.tensor(f"{stem}.weight", [width], 1.0, 0.2)
        if bias:
            self.tensor(f"{stem}.bias", [width], 0.0, 0.2)

    def untied(self):
        self.matrix("output.weight", self.width, VOCABULARY)
        return self

    def heads(self, heads, kv_heads, key, value=None, bias=False, normed=False, fused=False, output_bias=False):
        value = value or key
        self.set(attention__head_count=heads, attention__head_count_kv=kv_heads)
        if key * heads != self.width:
            self.set(attention__key_length=key, attention__value_length=value)
        sizes = [("attn_q", heads * key), ("attn_k", kv_heads * key), ("attn_v", kv_heads * value)]
        if fused:
            sizes = [("attn_qkv", sum(size for _, size in sizes))]
        for layer in range(self.layers):
            self.norm(f"blk.{layer}.attn_norm", self.width, output_bias and fused)
            for stem, size in sizes:
                self.linear(f"blk.{layer}.{stem}", self.width, size, bias)
            if normed:
                self.norm(f"blk.{layer}.attn_q_norm", key)
                self.norm(f"blk.{layer}.attn_k_norm", key)
            self.linear(f"blk.{layer}.attn_output", heads * value, self.width, output_bias)
        return self

    def feed_forward(self, hidden, bias=False, kind="gated"):
        self.set(feed_forward_length=hidden)
        for layer in range(self.layers):
            self.norm(f"blk.{layer}.ffn_norm", self.width, kind == "plain")
            if kind == "gated":
                self.linear(f"blk.{layer}.ffn_gate", self.width, hidden, bias)
            self.linear(f"blk.{layer}.ffn_up", self.width, hidden * (2 if kind == "fused" else 1), bias)
            self.linear(f"blk.{layer}.ffn_down", hidden, self.width, bias)
        return self

    def experts(self, hidden, count, used):
        self.set(feed_forward_length=hidden, expert_count=count, expert_used_count=used)
        for layer in range(self.layers):
            self.norm(f"blk.{layer}.ffn_norm", self.width)
            self.matrix(f"blk.{layer}.ffn_gate_inp.weight", self.width, count)
            self.matrix(f"blk.{layer}.ffn_gate_exps.weight", self.width, hidden, count)
            self.matrix(f"blk.{layer}.ffn_up_exps.weight", self.width, hidden, count)
            self.matrix(f"blk.{layer}.ffn_down_exps.weight", hidden, self.width, count)
        return self

    def rms(self, epsilon=1e-5):
        return self.set(attention__layer_norm_rms_epsilon=epsilon)

    def scaled(self):
        """Scales of matrices, some of which do not count, and a key that means nothing outside of Gemma."""
        for name, extents, _, _ in list(self.tensors):
            stem, _, kind = name.rpartition(".")
            if kind == "weight" and len(extents) > 1 and (".attn_" in stem or ".ffn_" in stem or ".ssm_" in stem):
                if not stem.endswith(("gate_inp", "ssm_norm", "conv1d")):
                    self.tensor(f"{stem}.scale", extents[2:] or [1], 1.3, 0.2)
                    self.tensor(f"{stem}.input_scale", extents[2:] or [1], 1.3, 0.2)
        return self.set(final_logit_softcapping=2.0)

    def post_norms(self):
        for layer in range(self.layers):
            self.norm(f"blk.{layer}.post_attention_norm", self.width)
            self.norm(f"blk.{layer}.post_ffw_norm", self.width)
        return self


def llama(layers=2, heads=4, kv_heads=2, key=12, **more):
    return Model("llama", layers).rms().heads(heads, kv_heads, key, **more).set(rope__dimension_count=key)


def llama_factors():
    model = llama(key=16, bias=True, output_bias=True).feed_forward(72, bias=True).untied()
    model.tensor("rope_freqs.weight", [8], 3.0, 1.0)
    return model.set(rope__freq_base=500000.0)


def yarn(model, factor=4.0, original=8):
    return model.set(
        rope__scaling__type="yarn", rope__scaling__factor=factor, rope__scaling__original_context_length=original
    )


def phi3(context, original, fraction=1.0):
    model = Model("phi3", 2, context).rms().heads(4, 2, 12, fused=True).feed_forward(64, kind="fused").untied()
    turned = int(12 * fraction) // 2 * 2
    model.set(rope__dimension_count=turned, rope__scaling__original_context_length=original)
    model.set(rope__scaling__attn_factor=1.19)
    model.tensor("rope_factors_short.weight", [turned // 2], 1.2, 0.1)
    model.tensor("rope_factors_long.weight", [turned // 2], 4.0, 1.0)
    return model


def gpt2():
    model = Model("gpt2", 2, 40).heads(4, 4, 12, bias=True, fused=True, output_bias=True)
    model.feed_forward(96, bias=True, kind="plain").set(attention__layer_norm_epsilon=1e-5)
    model.tensor("output_norm.bias", [WIDTH], 0.0, 0.2)
    model.tensor("position_embd.weight", [WIDTH, 40], 0.0, 0.2)
    return model


def gemma3(layers, **keys):
    model = Model("gemma3", layers).rms(1e-6).heads(4, 2, 16, normed=True).feed_forward(96).post_norms()
    # Scaled by the root of the width, embeddings come out around 1, as everywhere.
    model.tensors[0][3] = 1.0 / WIDTH
    return model.set(rope__freq_base=1000000.0, **keys)


def mamba2(groups=2, width=WIDTH, inner=96, heads=6, state=16, kernel=4):
    model = Model("mamba2", 3, width=width).rms()
    model.set(ssm__conv_kernel=kernel, ssm__inner_size=inner, ssm__state_size=state)
    model.set(ssm__time_step_rank=heads, ssm__group_count=groups)
    model.set(feed_forward_length=0, attention__head_count=0)
    mixed = inner + 2 * groups * state
    for layer in range(3):
        blk = f"blk.{layer}"
        model.norm(f"{blk}.attn_norm", width)
        model.matrix(f"{blk}.ssm_in.weight", width, inner + mixed + heads)
        model.linear(f"{blk}.ssm_conv1d", kernel, mixed, bias=True)
        model.tensor(f"{blk}.ssm_dt.bias", [heads], -1.0, 1.0)
        model.tensor(f"{blk}.ssm_a", [1, heads], -1.0, 0.4)
        model.tensor(f"{blk}.ssm_d", [1, heads], 1.0, 0.3)
        model.tensor(f"{blk}.ssm_norm.weight", [inner // groups, groups], 1.0, 0.2)
        model.matrix(f"{blk}.ssm_out.weight", inner, width)
    return model


MODELS = {
    "llama": llama().feed_forward(64).untied(),
    "llama-factors": llama_factors().scaled(),
    "llama-linear": llama(heads=6, kv_heads=6, key=8)
    .feed_forward(64)
    .set(rope__scaling__type="linear", rope__scaling__factor=2.0),
    "llama-yarn": yarn(llama().feed_forward(64)),
    "llama-experts": llama().experts(40, 6, 2).untied(),
    "llama-experts-all": llama().experts(40, 3, 3).scaled(),
    "qwen2": Model("qwen2", 2).rms(1e-6).heads(4, 2, 12, bias=True).feed_forward(72),
    "qwen2-yarn": yarn(Model("qwen2", 2).rms(1e-6).heads(6, 2, 8, bias=True).feed_forward(72).untied().scaled()),
    "qwen3": Model("qwen3", 2).rms(1e-6).heads(4, 1, 16, normed=True).feed_forward(72).scaled().set(rope__freq_base=1e6),
    "qwen3moe": Model("qwen3moe", 2)
    .rms(1e-6)
    .heads(4, 2, 16, normed=True)
    .experts(32, 8, 3)
    .untied()
    .scaled()
    .set(expert_feed_forward_length=32, rope__freq_base=1e6),
    # llama.cpp rounds contexts up to 256, and chooses factors by them.
    "phi3": phi3(256, 256),
    "phi3-long": phi3(256, 16, fraction=0.75).scaled(),
    "gpt2": gpt2(),
    "gpt2-scaled": gpt2().scaled(),
    "gemma3": gemma3(8, attention__sliding_window=7),
    "gemma3-scaled": gemma3(
        4,
        attention__sliding_window=5,
        attention__sliding_window_pattern=2,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
        final_logit_softcapping=3.0,
    ),
    "gemma3-whole": gemma3(2),
    "mamba2": mamba2().scaled(),
    "mamba2-one-group": mamba2(groups=1, width=40, inner=64, heads=2, state=32),
}


def kind(value):
    return {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}.get(
        type(value), gguf.GGUFValueType.STRING
    )


def write_model(path, model):
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in model.keys.items():
        if key != "general.architecture":
            writer.add_key_value(key, value, kind(value))
    for name, extents, mean, deviation in model.tensors:
        writer.add_tensor(name, weights(name, extents, mean, deviation))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(peers, path, tokens):
    words = " ".join(map(str, tokens))
    answer = subprocess.run([peers, "logits", "-m", path, words], check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)["logits"]


class Exact:
    """Models with GELU in 64 bits."""

    def __init__(self, model):
        self.model, self.layers = model, model.layers
        self.tensors = {tensor[0]: weights(*tensor).astype(numpy.float64) for tensor in model.tensors}

    def key(self, name, default=None):
        return self.model.keys.get(f"{self.model.architecture}.{name}", default)

    def linear(self, stem, x):
        scale = self.tensors.get(f"{stem}.scale", 1.0) if ".attn_" in stem else 1.0
        return x @ self.tensors[f"{stem}.weight"].T * scale + self.tensors.get(f"{stem}.bias", 0.0)

    def norm(self, stem, x):
        if self.model.architecture == "gpt2":
            x = x - x.mean(-1, keepdims=True)
            epsilon = self.key("attention.layer_norm_epsilon")
        else:
            epsilon = self.key("attention.layer_norm_rms_epsilon")
        x = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
        return x * self.tensors[f"{stem}.weight"] + self.tensors.get(f"{stem}.bias", 0.0)

    @staticmethod
    def gelu(x):
        return 0.5 * x * (1.0 + numpy.tanh(numpy.sqrt(2.0 / numpy.pi) * (x + 0.044715 * x**3)))

    @staticmethod
    def turned(x, base, scale):
        half = x.shape[-1] // 2
        angles = numpy.arange(len(x))[:, None] * scale * base ** (-numpy.arange(half) / half)
        cos, sin = numpy.cos(angles)[:, None], numpy.sin(angles)[:, None]
        a, b = x[..., :half], x[..., half:]
        return numpy.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    def attention(self, q, k, v, window):
        tokens, heads, size = q.shape
        k, v = (numpy.repeat(x, heads // x.shape[1], 1) for x in (k, v))
        scores = numpy.einsum("qhd,khd->hqk", q, k) / size**0.5
        age = numpy.arange(tokens)[:, None] - numpy.arange(tokens)
        scores[:, (age < 0) | (age >= (window or tokens))] = -numpy.inf
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        return numpy.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(tokens, -1)

    def gpt2_layer(self, blk, x):
        heads = self.key("attention.head_count")
        qkv = self.linear(f"{blk}.attn_qkv", self.norm(f"{blk}.attn_norm", x))
        q, k, v = (part.reshape(len(x), heads, -1) for part in numpy.split(qkv, 3, -1))
        x = x + self.linear(f"{blk}.attn_output", self.attention(q, k, v, None))
        up = self.linear(f"{blk}.ffn_up", self.norm(f"{blk}.ffn_norm", x))
        return x + self.linear(f"{blk}.ffn_down", self.gelu(up))

    def gemma3_layer(self, layer, x):
        blk, window = f"blk.{layer}", self.key("attention.sliding_window")
        period = self.key("attention.sliding_window_pattern", 6)
        base, scale = self.key("rope.freq_base"), 1.0 / self.key("rope.scaling.factor", 1.0)
        if window and layer % period < period - 1:
            base, scale = 10000.0, 1.0
        else:
            window = None
        h = self.norm(f"{blk}.attn_norm", x)
        size = self.key("attention.key_length")
        q, k, v = (self.linear(f"{blk}.attn_{part}", h).reshape(len(x), -1, size) for part in "qkv")
        q, k = (self.turned(self.norm(f"{blk}.attn_{n}_norm", h), base, scale) for n, h in (("q", q), ("k", k)))
        h = self.linear(f"{blk}.attn_output", self.attention(q, k, v, window))
        x = x + self.norm(f"{blk}.post_attention_norm", h)
        h = self.norm(f"{blk}.ffn_norm", x)
        h = self.gelu(self.linear(f"{blk}.ffn_gate", h)) * self.linear(f"{blk}.ffn_up", h)
        return x + self.norm(f"{blk}.post_ffw_norm", self.linear(f"{blk}.ffn_down", h))

    def logits(self, tokens):
        table, gpt2 = self.tensors["token_embd.weight"], self.model.architecture == "gpt2"
        x = table[tokens]
        x = x + self.tensors["position_embd.weight"][: len(tokens)] if gpt2 else x * WIDTH**0.5
        for layer in range(self.layers):
            x = self.gpt2_layer(f"blk.{layer}", x) if gpt2 else self.gemma3_layer(layer, x)
        x = self.norm("output_norm", x) @ table.T
        cap = None if gpt2 else self.key("final_logit_softcapping")
        return cap * numpy.tanh(x / cap) if cap else x


def checked(model, tokens, rows):
    """llama.cpp's logits, or exact ones where it rounds."""
    if model.architecture not in ["gpt2", "gemma3"]:
        return rows
    exact = Exact(model).logits(tokens)
    error = numpy.linalg.norm(numpy.array(rows) - exact) / numpy.linalg.norm(exact)
    print(f"{model.architecture}: llama.cpp is {error:.1e} off")
    assert error < 1e-3, error
    return exact


def main(peers):
    HERE.mkdir(exist_ok=True)
    tokens = [(7 * index * index + 3 * index + 1) % VOCABULARY for index in range(TOKENS)]
    with tempfile.TemporaryDirectory() as folder:
        for name, model in MODELS.items():
            path = f"{folder}/{name}.gguf"
            write_model(path, model)
            rows = checked(model, tokens, logits(peers, path, tokens))
            rows = [[float(f"{x:.7g}") for x in row] for row in rows]
            fixture = {"keys": model.keys, "tensors": model.tensors, "tokens": tokens, "logits": rows}
            (HERE / f"{name}.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
