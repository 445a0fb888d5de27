"""Writes the fixtures of the architecture tests: tiny random models, and the logits that llama.cpp gives for them.

    pip install numpy gguf
    cargo xtask bench peers          # among other things, builds the program below, which links llama.cpp
    python3 generate.py TARGET/peers/target/release/peers [NAME ...]

A fixture holds a model's keys, the names and sizes of its tensors, some tokens and their logits. The weights are not
in it: they follow from the tensors' names, here and in `arches.rs`.

llama.cpp looks GELU up in a table of 16-bit numbers. The logits of gpt2 and gemma3 are computed here in 64 bits, and
llama.cpp's have to be close. Those of other models with GELU come from a llama.cpp without the table
(docs/src/recipes/architecture.md).
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

    def __init__(self, architecture, layers, context=64, width=WIDTH, vocabulary=VOCABULARY):
        self.architecture, self.layers, self.width, self.vocabulary = architecture, layers, width, vocabulary
        self.keys = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
        self.tensors = []
        self.set(vocab_size=vocabulary, context_length=context, embedding_length=width, block_count=layers)
        self.matrix("token_embd.weight", width, vocabulary)
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

    def untied(self, bias=False):
        self.linear("output", self.width, self.vocabulary, bias)
        return self

    def heads(
        self,
        heads,
        kv_heads,
        key,
        value=None,
        bias=False,
        normed=None,
        fused=False,
        output_bias=False,
        norm="attn_norm",
        norm_bias=None,
        gate=False,
        gated_queries=False,
        sinks=False,
        layers=None,
    ):
        """Attention. Heads may be a list with a number for each layer; `normed` is "each", "whole" or "own"."""
        value = value or key
        self.set(attention__head_count=heads, attention__head_count_kv=kv_heads)
        each = lambda number, layer: number[layer] if isinstance(number, list) else number
        if isinstance(heads, list) or key * heads != self.width:
            self.set(attention__key_length=key, attention__value_length=value)
        for layer in layers or range(self.layers):
            blk, queries, keys = f"blk.{layer}", each(heads, layer), each(kv_heads, layer)
            if queries == 0:
                continue
            if norm:
                self.norm(f"{blk}.{norm}", self.width, output_bias and fused if norm_bias is None else norm_bias)
            if keys == 0:
                self.matrix(f"{blk}.attn_output.weight", self.width, self.width)
                continue
            sizes = [("attn_q", queries * key * (2 if gated_queries else 1)), ("attn_k", keys * key), ("attn_v", keys * value)]
            if fused:
                sizes = [("attn_qkv", sum(size for _, size in sizes))]
            for stem, size in sizes:
                self.linear(f"{blk}.{stem}", self.width, size, bias)
            for which, count in [("q", queries), ("k", keys)]:
                extents = {"each": [key], "whole": [key * count], "own": [key, count]}.get(normed, None)
                if extents:
                    self.tensor(f"{blk}.attn_{which}_norm.weight", extents, 1.0, 0.2)
            if gate:
                self.matrix(f"{blk}.attn_gate.weight", self.width, queries * value)
            if sinks:
                self.tensor(f"{blk}.attn_sinks.weight", [queries], 1.0, 1.0)
            self.linear(f"{blk}.attn_output", queries * value, self.width, output_bias)
        return self

    def feed_forward(self, hidden, bias=False, kind="gated", norm="ffn_norm", layers=None):
        """Feed-forward parts; their sizes may be a list with a number for each layer."""
        self.set(feed_forward_length=hidden)
        for layer in layers or range(self.layers):
            size = hidden[layer] if isinstance(hidden, list) else hidden
            if size == 0:
                continue
            if norm:
                self.norm(f"blk.{layer}.{norm}", self.width, kind == "plain")
            if kind == "gated":
                self.linear(f"blk.{layer}.ffn_gate", self.width, size, bias)
            self.linear(f"blk.{layer}.ffn_up", self.width, size * (2 if kind == "fused" else 1), bias)
            self.linear(f"blk.{layer}.ffn_down", size, self.width, bias)
        return self

    def experts(
        self,
        hidden,
        count,
        used,
        norm="ffn_norm",
        bias=False,
        chosen_by=False,
        shared=0,
        gated_shared=False,
        fused=False,
        gate=True,
        layers=None,
    ):
        """Experts; `chosen_by` adds the bias of the choice, `shared` is the size of those that every token uses."""
        self.set(expert_count=count, expert_used_count=used)
        if not layers:
            self.set(feed_forward_length=hidden)
        for layer in layers or range(self.layers):
            blk = f"blk.{layer}"
            if norm:
                self.norm(f"{blk}.{norm}", self.width)
            self.linear(f"{blk}.ffn_gate_inp", self.width, count, bias)
            if chosen_by:
                self.tensor(f"{blk}.exp_probs_b.bias", [count], 0.0, 0.4)
            sizes = [("gate", self.width, hidden), ("up", self.width, hidden), ("down", hidden, self.width)]
            if fused:
                sizes = [("gate_up", self.width, 2 * hidden), sizes[2]]
            for part, rows, columns in sizes if gate else sizes[1:]:
                self.matrix(f"{blk}.ffn_{part}_exps.weight", rows, columns, count)
                if bias:
                    self.tensor(f"{blk}.ffn_{part}_exps.bias", [columns, count], 0.0, 0.5)
            if shared:
                if gate:
                    self.matrix(f"{blk}.ffn_gate_shexp.weight", self.width, shared)
                self.matrix(f"{blk}.ffn_up_shexp.weight", self.width, shared)
                self.matrix(f"{blk}.ffn_down_shexp.weight", shared, self.width)
            if gated_shared:
                self.tensor(f"{blk}.ffn_gate_inp_shexp.weight", [self.width], 0.0, self.width**-0.5)
        return self

    def wide(self, stem, deviation):
        """Tensors whose names contain this get another deviation."""
        for tensor in self.tensors:
            if stem in tensor[0]:
                tensor[3] = deviation
        return self

    def rms(self, epsilon=1e-5):
        return self.set(attention__layer_norm_rms_epsilon=epsilon)

    def scaled(self, feed_forward=True):
        """Scales of matrices, and a key that means nothing outside of Gemma. In some architectures llama.cpp leaves out those
        of the feed-forward part."""
        for name, extents, _, _ in list(self.tensors):
            stem, _, kind = name.rpartition(".")
            if kind == "weight" and len(extents) > 1 and (".attn_" in stem or ".ffn_" in stem or ".ssm_" in stem):
                if not stem.endswith(("gate_inp", "ssm_norm", "conv1d")) and (feed_forward or ".ffn_" not in stem):
                    self.tensor(f"{stem}.scale", extents[2:] or [1], 1.3, 0.2)
                    self.tensor(f"{stem}.input_scale", extents[2:] or [1], 1.3, 0.2)
        return self.set(final_logit_softcapping=2.0)

    def mean(self, epsilon=1e-5):
        return self.set(attention__layer_norm_epsilon=epsilon)

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
    model = Model("gemma3", layers).rms(1e-6).heads(4, 2, 16, normed="each").feed_forward(96).post_norms()
    # Scaled by the root of the width, embeddings come out around 1, as everywhere.
    model.tensors[0][3] = 1.0 / WIDTH
    return model.set(rope__freq_base=1000000.0, **keys)


def state_space(model, layers, groups=2, inner=64, heads=4, state=8, kernel=4, normed=True, norm=None):
    """Mamba 2's mixers in these layers."""
    model.set(ssm__conv_kernel=kernel, ssm__inner_size=inner, ssm__state_size=state)
    model.set(ssm__time_step_rank=heads, ssm__group_count=groups)
    mixed = inner + 2 * groups * state
    for layer in layers:
        blk = f"blk.{layer}"
        if norm:
            model.norm(f"{blk}.{norm}", model.width)
        model.matrix(f"{blk}.ssm_in.weight", model.width, inner + mixed + heads)
        model.linear(f"{blk}.ssm_conv1d", kernel, mixed, bias=True)
        model.tensor(f"{blk}.ssm_dt.bias", [heads], -1.0, 1.0)
        model.tensor(f"{blk}.ssm_a", [1, heads], -1.0, 0.4)
        model.tensor(f"{blk}.ssm_d", [1, heads], 1.0, 0.3)
        if normed:
            model.tensor(f"{blk}.ssm_norm.weight", [inner // groups, groups], 1.0, 0.2)
        model.matrix(f"{blk}.ssm_out.weight", inner, model.width)
    return model


def mamba1(model, layers, inner=64, rank=6, state=8, kernel=4, norms=False):
    """Mamba 1's mixers in these layers."""
    model.set(ssm__conv_kernel=kernel, ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank)
    for layer in layers:
        blk = f"blk.{layer}"
        model.norm(f"{blk}.attn_norm", model.width)
        model.matrix(f"{blk}.ssm_in.weight", model.width, 2 * inner)
        model.linear(f"{blk}.ssm_conv1d", kernel, inner, bias=True)
        model.matrix(f"{blk}.ssm_x.weight", inner, rank + 2 * state)
        model.matrix(f"{blk}.ssm_dt.weight", rank, inner)
        model.tensor(f"{blk}.ssm_dt.bias", [inner], -1.0, 1.0)
        model.tensor(f"{blk}.ssm_a", [state, inner], -1.0, 0.4)
        model.tensor(f"{blk}.ssm_d", [inner], 1.0, 0.3)
        if norms:
            model.norm(f"{blk}.ssm_dt_norm", rank)
            model.norm(f"{blk}.ssm_b_norm", state)
            model.norm(f"{blk}.ssm_c_norm", state)
        model.matrix(f"{blk}.ssm_out.weight", inner, model.width)
    return model


def short_convolutions(model, layers, kernel=3):
    model.set(shortconv__l_cache=kernel)
    for layer in layers:
        blk = f"blk.{layer}"
        model.norm(f"{blk}.attn_norm", model.width)
        model.matrix(f"{blk}.shortconv.conv.weight", kernel, model.width)
        model.matrix(f"{blk}.shortconv.in_proj.weight", model.width, 3 * model.width)
        model.matrix(f"{blk}.shortconv.out_proj.weight", model.width, model.width)
    return model


def lfm2(architecture):
    model = small(architecture, 6).rms()
    model.tensors[1][0] = "token_embd_norm.weight"
    model.heads(4, [0, 0, 2, 0, 2, 0], 8, normed="each", layers=[2, 4])
    return short_convolutions(model, [0, 1, 3, 5])


def falcon_h1(normed):
    model = small("falcon-h1").rms().heads(4, 2, 8).feed_forward(40)
    for tensor in model.tensors:
        tensor[0] = tensor[0].replace("ffn_norm.weight", "ffn_norm")
    return state_space(model, range(2), normed=normed)


def nemotron_h(architecture, experts=False):
    """State space, attention, feed-forward part, twice."""
    model = small(architecture, 6).rms().mean().heads(4, [0, 2, 0, 0, 2, 0], 8, layers=[1, 4])
    state_space(model, [0, 3], norm="attn_norm")
    if experts:
        model.experts(24, 6, 2, norm="attn_norm", shared=20, chosen_by=True, gate=False, layers=[2, 5])
        model.set(feed_forward_length=[0, 0, 24, 0, 0, 24], expert_feed_forward_length=24)
        model.set(expert_shared_feed_forward_length=20, expert_shared_count=1)
        model.set(expert_weights_norm=True, expert_weights_scale=1.5)
    else:
        model.feed_forward([0, 0, 40, 0, 0, 40], kind="squared", norm="attn_norm")
    return model


def latent_experts(model, latent=16):
    """Experts that work in a narrower space."""
    for tensor in model.tensors:
        if tensor[0].endswith("_exps.weight"):
            tensor[1] = [latent if extent == model.width else extent for extent in tensor[1]]
    for layer in [2, 5]:
        model.matrix(f"blk.{layer}.ffn_latent_down.weight", model.width, latent)
        model.matrix(f"blk.{layer}.ffn_latent_up.weight", latent, model.width)
    return model.set(moe_latent_size=latent)


def latent_attention(architecture, layers=3, heads=4, rank=16, fixed=8, turned=4, value=6, query=20, absorbed=True):
    model = small(architecture, layers).rms()
    model.set(attention__head_count=heads, attention__kv_lora_rank=rank, rope__dimension_count=turned)
    if query:
        model.set(attention__q_lora_rank=query)
    if absorbed:
        model.set(attention__head_count_kv=1, attention__key_length=rank + turned, attention__value_length=rank)
        model.set(attention__key_length_mla=fixed + turned, attention__value_length_mla=value)
    else:
        model.set(attention__head_count_kv=heads, attention__key_length=fixed + turned, attention__value_length=value)
    for layer in range(layers):
        blk = f"blk.{layer}"
        model.norm(f"{blk}.attn_norm", model.width)
        if query:
            model.matrix(f"{blk}.attn_q_a.weight", model.width, query)
            model.norm(f"{blk}.attn_q_a_norm", query)
        stem, rows = ("attn_q_b", query) if query else ("attn_q", model.width)
        model.matrix(f"{blk}.{stem}.weight", rows, heads * (fixed + turned))
        model.matrix(f"{blk}.attn_kv_a_mqa.weight", model.width, rank + turned)
        model.norm(f"{blk}.attn_kv_a_norm", rank)
        if absorbed:
            model.matrix(f"{blk}.attn_k_b.weight", fixed, rank, heads)
            model.matrix(f"{blk}.attn_v_b.weight", rank, value, heads)
        else:
            model.matrix(f"{blk}.attn_kv_b.weight", rank, heads * (fixed + value))
        model.matrix(f"{blk}.attn_output.weight", heads * value, model.width)
    model.feed_forward(40, layers=[0]).experts(24, 8, 3, shared=24, chosen_by=True, layers=range(1, layers))
    model.set(leading_dense_block_count=1, expert_feed_forward_length=24, expert_shared_count=1)
    return model.set(expert_weights_scale=1.5, expert_weights_norm=True, expert_gating_func=2)


def delta_net(architecture, layers=8, keys=2, values=4, head=8, kernel=4, fused=False, interval=4):
    """Gated delta nets, and attention in the last layer of each interval."""
    attending = [layer for layer in range(layers) if (layer + 1) % interval == 0]
    model = small(architecture, layers).rms(1e-6)
    model.heads(4, 2, 16, normed="each", gated_queries=True, layers=attending)
    model.set(ssm__conv_kernel=kernel, ssm__state_size=head, ssm__inner_size=values * head)
    model.set(ssm__time_step_rank=values, ssm__group_count=keys, rope__dimension_count=8)
    mixed, inner = 2 * keys * head + values * head, values * head
    for layer in range(layers):
        blk = f"blk.{layer}"
        if layer in attending:
            continue
        model.norm(f"{blk}.attn_norm", model.width)
        if fused:
            model.matrix(f"{blk}.ssm_in.weight", model.width, mixed + inner)
        else:
            model.matrix(f"{blk}.attn_qkv.weight", model.width, mixed)
            model.matrix(f"{blk}.attn_gate.weight", model.width, inner)
        if architecture == "qwen3next":
            model.matrix(f"{blk}.ssm_ba.weight", model.width, 2 * values)
        else:
            model.matrix(f"{blk}.ssm_beta.weight", model.width, values)
            model.matrix(f"{blk}.ssm_alpha.weight", model.width, values)
        model.matrix(f"{blk}.ssm_conv1d.weight", kernel, mixed)
        model.tensor(f"{blk}.ssm_dt.bias", [values], -1.0, 1.0)
        model.tensor(f"{blk}.ssm_a", [values], -1.0, 0.4)
        model.norm(f"{blk}.ssm_norm", head)
        model.matrix(f"{blk}.ssm_out.weight", inner, model.width)
    return model


def shared_experts(model):
    model.experts(24, 6, 2, norm="post_attention_norm", shared=20, gated_shared=True)
    return model.set(expert_feed_forward_length=24, expert_shared_feed_forward_length=20)


def rwkv7(layers=3, width=128, head=64, rank=6, hidden=40):
    # llama.cpp computes heads of 64 elements, as all known models have.
    model = Model("rwkv7", layers, width=width, vocabulary=24).mean()
    model.set(wkv__head_size=head, attention__head_count=0, feed_forward_length=hidden, token_shift_count=2)
    for which in ["decay", "iclr", "value_residual_mix", "gate"]:
        model.set(**{f"attention__{which}_lora_rank": rank})
    model.norm("token_embd_norm", width, bias=True)
    model.tensor("output_norm.bias", [width], 0.0, 0.2)
    model.untied()
    for layer in range(layers):
        blk = f"blk.{layer}"
        model.norm(f"{blk}.attn_norm", width, bias=True)
        model.norm(f"{blk}.attn_norm_2", width, bias=True)
        for which in "wavg":
            model.matrix(f"{blk}.time_mix_{which}1.weight", width, rank)
            model.matrix(f"{blk}.time_mix_{which}2.weight", rank, width)
            if which != "g":
                model.tensor(f"{blk}.time_mix_{which}0.weight", [width], 0.0, 1.0)
        model.tensor(f"{blk}.time_mix_lerp_fused.weight", [width, 1, 1, 6], 0.5, 0.3)
        for which, mean in [("k_k", 1.0), ("k_a", 1.0), ("r_k", 0.0)]:
            model.tensor(f"{blk}.time_mix_{which}.weight", [width], mean, 0.5)
        for which in ["key", "value", "receptance", "output"]:
            model.matrix(f"{blk}.time_mix_{which}.weight", width, width)
        model.norm(f"{blk}.time_mix_ln", width, bias=True)
        model.tensor(f"{blk}.channel_mix_lerp_k.weight", [width], 0.5, 0.3)
        model.matrix(f"{blk}.channel_mix_key.weight", width, hidden)
        model.matrix(f"{blk}.channel_mix_value.weight", hidden, width)
    return model


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


def small(architecture, layers=2, **more):
    return Model(architecture, layers, width=32, vocabulary=24, **more)


def sections(model):
    return model.set(rope__dimension_sections=[3, 3, 2, 0])


def further_block(model):
    """A block behind the layers that predicts one token more, and is not run."""
    model.layers += 1
    block, width = model.layers - 1, model.width
    for name, extents, mean, deviation in list(model.tensors):
        if name.startswith(f"blk.{block - 1}."):
            model.tensor(name.replace(f"blk.{block - 1}.", f"blk.{block}."), extents, mean, deviation)
    model.matrix(f"blk.{block}.nextn.eh_proj.weight", 2 * width, width)
    model.norm(f"blk.{block}.nextn.enorm", width)
    model.norm(f"blk.{block}.nextn.hnorm", width)
    return model.set(block_count=model.layers, nextn_predict_layers=1)


def granite(architecture="granite", **more):
    model = small(architecture).rms().heads(4, 2, 8, **more)
    return model.set(logit_scale=4.0, residual_scale=0.4, embedding_scale=3.0, attention__scale=0.2)


def gemma(architecture, layers=2):
    model = small(architecture, layers).rms(1e-6).heads(4, 2, 16).feed_forward(40)
    model.tensors[0][3] = 1.0 / model.width
    return model


def gemma4(layers, kv_heads, **more):
    """Every second layer sees everything, and has larger heads."""
    model = small("gemma4", layers).rms(1e-6).post_norms()
    model.tensors[0][3] = 1.0 / model.width
    windowed = [layer % 2 == 0 for layer in range(layers)]
    model.set(attention__head_count=2, attention__head_count_kv=kv_heads)
    model.set(attention__key_length=16, attention__value_length=16, rope__dimension_count=16)
    model.set(attention__key_length_swa=8, attention__value_length_swa=8, rope__dimension_count_swa=8)
    model.set(attention__sliding_window=6, attention__sliding_window_pattern=windowed)
    model.set(rope__freq_base=1000000.0, rope__freq_base_swa=10000.0, final_logit_softcapping=3.0)
    model.tensor("rope_freqs.weight", [8], 3.0, 1.0)
    own = layers - more.get("shared", 0)
    for layer in range(layers):
        blk, head, kv = f"blk.{layer}", 8 if windowed[layer] else 16, kv_heads[layer]
        model.norm(f"{blk}.attn_norm", model.width)
        model.matrix(f"{blk}.attn_q.weight", model.width, 2 * head)
        # Scores are not scaled.
        model.tensor(f"{blk}.attn_q_norm.weight", [head], 0.3, 0.1)
        if layer < own:
            model.matrix(f"{blk}.attn_k.weight", model.width, kv * head)
            model.norm(f"{blk}.attn_k_norm", head)
            if windowed[layer] or more.get("values", True):
                model.matrix(f"{blk}.attn_v.weight", model.width, kv * head)
        model.matrix(f"{blk}.attn_output.weight", 2 * head, model.width)
        model.tensor(f"{blk}.layer_output_scale.weight", [1], 0.8, 0.1)
    if layers > own:
        model.set(attention__shared_kv_layers=layers - own)
    return model


def layer_embeddings(model, each=8):
    model.set(embedding_length_per_layer_input=each)
    model.tensor("per_layer_token_embd.weight", [each * model.layers, model.vocabulary], 0.0, each**-0.5)
    model.matrix("per_layer_model_proj.weight", model.width, each * model.layers)
    model.wide("per_layer_model_proj", 1.0)
    model.norm("per_layer_proj_norm", each)
    for layer in range(model.layers):
        model.matrix(f"blk.{layer}.inp_gate.weight", model.width, each)
        model.matrix(f"blk.{layer}.proj.weight", each, model.width)
        model.norm(f"blk.{layer}.post_norm", model.width)
    return model


def gemma4_experts():
    model = gemma4(4, [2, 1, 2, 1], values=False).feed_forward(24).experts(20, 6, 2, norm=None, fused=True)
    model.set(feed_forward_length=24, expert_feed_forward_length=20, embedding_length_per_layer_input=0)
    for layer in range(4):
        blk = f"blk.{layer}"
        model.tensor(f"{blk}.ffn_gate_inp.scale", [model.width], 3.0, 1.0)
        model.tensor(f"{blk}.ffn_down_exps.scale", [6], 1.0, 0.3)
        for norm in ["pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"]:
            model.norm(f"{blk}.{norm}", model.width)
    return model


def stablelm(norm, normed=None):
    model = small("stablelm").mean().heads(4, 2, 8, bias=True, normed=normed, norm_bias=True).untied()
    model.feed_forward(40, norm=norm).set(rope__dimension_count=4, use_parallel_residual=norm is None)
    model.tensor("output_norm.bias", [model.width], 0.0, 0.2)
    if norm:
        for layer in range(2):
            model.tensor(f"blk.{layer}.ffn_norm.bias", [model.width], 0.0, 0.2)
    return model


def gpt_style(architecture, fused, norm="ffn_norm", **more):
    model = small(architecture).mean()
    model.heads(4, more.pop("kv_heads", 2), 8, bias=True, fused=fused, output_bias=True, norm_bias=True)
    model.feed_forward(40, bias=True, kind="plain", norm=norm)
    model.tensor("output_norm.bias", [model.width], 0.0, 0.2)
    return model


def orion():
    model = small("orion").mean().heads(4, 2, 8, norm_bias=True).feed_forward(40).untied()
    for layer in range(2):
        model.tensor(f"blk.{layer}.ffn_norm.bias", [model.width], 0.0, 0.2)
    model.tensor("output_norm.bias", [model.width], 0.0, 0.2)
    return model


def starcoder():
    model = gpt_style("starcoder", fused=True, kv_heads=1)
    model.tensor("position_embd.weight", [model.width, 64], 0.0, 0.2)
    return model


def deci():
    # llama.cpp leaves out the attention of layers without a feed-forward part; such layers have none in known files.
    model = small("deci", 6).rms().heads([4, 0, 4, 2, 0, 4], [2, 0, 0, 1, 0, 4], 8)
    return model.feed_forward([40, 24, 24, 32, 0, 40]).untied()


DENSE = {
    "smollm3": small("smollm3", 8).rms().heads(4, 2, 8).feed_forward(24),
    "mistral3": yarn(small("mistral3").rms().heads(4, 2, 8).feed_forward(40)).set(
        rope__scaling__yarn_log_multiplier=0.7
    ),
    "mistral3-grown": yarn(small("mistral3").rms().heads(4, 2, 8).feed_forward(40)).set(
        attention__temperature_scale=0.5
    ),
    "internlm2": small("internlm2").rms().heads(4, 2, 8).feed_forward(40).untied(),
    "ernie4_5": small("ernie4_5").rms().heads(4, 2, 16).feed_forward(40),
    "deci": deci(),
    "xverse": small("xverse").rms().heads(4, 2, 8).feed_forward(40).untied(),
    "arcee": small("arcee").rms().heads(4, 2, 16).feed_forward(40, kind="squared"),
    "exaone": small("exaone").rms().heads(4, 2, 16).feed_forward(40),
    "orion": orion(),
    "starcoder": starcoder(),
    "nemotron": gpt_style("nemotron", fused=False).untied().set(rope__dimension_count=4),
    "granite": granite().feed_forward(40),
    "granite-unturned": granite().feed_forward(40).set(rope__scaling__finetuned=False).untied(),
    "minicpm": small("minicpm").rms().heads(4, 2, 8).feed_forward(40).set(logit_scale=1.5),
    "minicpm-keys": small("minicpm")
    .rms()
    .heads(4, 2, 8)
    .feed_forward(40)
    .set(logit_scale=4.0, residual_scale=0.4, embedding_scale=3.0),
    # llama.cpp does not read this one's epsilon.
    "qwen2vl": sections(small("qwen2vl").rms(1e-12).heads(2, 1, 16, bias=True).feed_forward(40)),
    "seed_oss": small("seed_oss")
    .rms()
    .heads(4, 2, 16, bias=True)
    .feed_forward(40, norm="post_attention_norm")
    .untied(),
    "qwen3vl": sections(small("qwen3vl").rms(1e-6).heads(4, 2, 16, normed="each").feed_forward(40)),
    "hunyuan-dense": small("hunyuan-dense").rms().heads(4, 2, 8, normed="each").feed_forward(40),
    "glm4": further_block(
        small("glm4")
        .rms()
        .heads(4, 2, 8, bias=True)
        .feed_forward(40, kind="fused")
        .post_norms()
        .untied()
        .set(rope__dimension_count=4)
    ),
    "glm4-sections": sections(
        small("glm4").rms().heads(4, 2, 16).feed_forward(40, kind="fused").post_norms()
    ),
    "olmo2": small("olmo2")
    .rms()
    .heads(4, 2, 8, normed="whole", norm=None)
    .feed_forward(40, norm=None)
    .post_norms()
    .untied(),
    "olmo2-windows": yarn(
        small("olmo2", 8)
        .rms()
        .heads(4, 4, 8, normed="whole", norm=None)
        .feed_forward(24, norm=None)
        .post_norms()
        .untied()
        .set(attention__sliding_window=6)
    ),
    "exaone4": further_block(
        small("exaone4")
        .rms()
        .heads(4, 2, 8, normed="each", norm=None)
        .feed_forward(40, norm=None)
        .post_norms()
    ),
    "command-r": small("command-r", 3)
    .mean()
    .heads(4, 2, 8)
    .feed_forward(40, norm=None)
    .set(logit_scale=0.25),
    "cohere2": small("cohere2", 8)
    .mean()
    .heads(4, 2, 8)
    .feed_forward(24, norm=None)
    .set(logit_scale=0.25, attention__sliding_window=6),
    "muse-glimmer": small("muse-glimmer", 8)
    .rms()
    .heads(4, 2, 8, normed="each", gate=True)
    .feed_forward(24)
    .post_norms()
    .untied()
    .set(logit_scale=0.5, final_logit_softcapping=1.5)
    .set(attention__sliding_window=6, attention__sliding_window_pattern=4),
    "stablelm": stablelm("ffn_norm"),
    "stablelm-parallel": stablelm(None, normed="own"),
    "starcoder2": gpt_style("starcoder2", fused=False),
    "gptneox": gpt_style("gptneox", fused=True, kv_heads=4)
    .untied()
    .set(use_parallel_residual=True, rope__dimension_count=4),
    "gptneox-series": gpt_style("gptneox", fused=True, kv_heads=4)
    .untied()
    .set(use_parallel_residual=False, rope__dimension_count=4),
    "phi2": gpt_style("phi2", fused=False, norm=None).untied(bias=True).set(rope__dimension_count=4),
    "gemma": gemma("gemma"),
    "gemma2": gemma("gemma2", 4)
    .post_norms()
    .set(attention__sliding_window=6, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
}

GEMMA4 = {
    "gemma4": layer_embeddings(
        gemma4(8, [1] * 8, shared=4).feed_forward([24, 24, 24, 24, 40, 40, 40, 40])
    ),
    "gemma4-values": gemma4(4, [2, 1, 2, 1], values=False).feed_forward(24).set(embedding_length_per_layer_input=0),
    "gemma4-experts": gemma4_experts(),
}

EXPERTS = {
    "qwen3vlmoe": sections(
        small("qwen3vlmoe").rms(1e-6).heads(4, 2, 16, normed="each").experts(24, 6, 2).set(
            expert_feed_forward_length=24
        )
    ),
    "qwen2moe": small("qwen2moe")
    .rms(1e-6)
    .heads(4, 2, 8, bias=True)
    .experts(24, 6, 2, shared=20, gated_shared=True)
    .untied()
    .set(expert_feed_forward_length=24, expert_shared_feed_forward_length=20),
    "olmoe": small("olmoe").rms().heads(4, 4, 8, normed="whole").experts(24, 6, 2).untied(),
    "granitemoe": granite("granitemoe")
    .experts(24, 6, 2, shared=20)
    .set(expert_shared_feed_forward_length=20),
    "hunyuan-moe": small("hunyuan-moe")
    .rms()
    .heads(4, 2, 8, normed="each")
    .experts(24, 6, 2, shared=20)
    .set(expert_feed_forward_length=24, expert_shared_feed_forward_length=20),
    "ernie4_5-moe": small("ernie4_5-moe", 3)
    .rms()
    .heads(4, 2, 8)
    .feed_forward(40, layers=[0])
    .experts(24, 6, 2, shared=20, chosen_by=True, layers=[1, 2])
    .set(expert_feed_forward_length=24, expert_shared_feed_forward_length=20)
    .set(interleave_moe_layer_step=1, leading_dense_block_count=1),
    "glm4moe": further_block(
        small("glm4moe", 3)
        .rms()
        .heads(4, 2, 8, bias=True, normed="each")
        .feed_forward(40, norm="post_attention_norm", layers=[0])
        .experts(24, 6, 2, norm="post_attention_norm", shared=24, chosen_by=True, layers=[1, 2])
        .untied()
        .set(expert_feed_forward_length=24, expert_shared_count=1, leading_dense_block_count=1)
        .set(expert_weights_scale=1.7, expert_weights_norm=True, rope__dimension_count=4)
    ),
    "minimax-m2": small("minimax-m2")
    .rms()
    .heads(4, 2, 16, normed="whole")
    .experts(24, 6, 2, chosen_by=True)
    .untied()
    .set(expert_feed_forward_length=24, expert_gating_func=2, rope__dimension_count=8),
    # Positions beyond a chunk of 8192 tokens are not reached.
    "llama4": small("llama4", 8)
    .rms()
    .heads(4, 2, 8)
    .feed_forward(24, layers=[0, 2, 4, 6])
    .experts(24, 6, 2, shared=24, layers=[1, 3, 5, 7])
    .untied()
    .set(interleave_moe_layer_step=2, expert_feed_forward_length=24),
    "dots1": small("dots1", 3)
    .rms()
    .heads(4, 4, 8, normed="each")
    .feed_forward(40, layers=[0])
    .experts(24, 6, 2, shared=24, chosen_by=True, layers=[1, 2])
    .untied()
    .set(expert_feed_forward_length=24, expert_shared_count=1, leading_dense_block_count=1)
    .set(expert_weights_scale=1.7, expert_weights_norm=True, expert_gating_func=2),
    "deepseek": small("deepseek", 3)
    .rms()
    .heads(4, 2, 8)
    .feed_forward(40, layers=[0])
    .experts(24, 6, 2, shared=48, layers=[1, 2])
    .set(expert_feed_forward_length=24, expert_shared_count=2, leading_dense_block_count=1)
    .set(expert_weights_scale=1.7),
    "gpt-oss": yarn(
        small("gpt-oss", 4)
        .rms()
        .heads(4, 2, 16, bias=True, output_bias=True, norm_bias=False, sinks=True)
        .experts(24, 6, 2, norm="post_attention_norm", bias=True)
        .wide("_exps.weight", 2.0)
        .untied()
        .set(expert_feed_forward_length=24, attention__sliding_window=6, rope__dimension_count=16)
    ),
}

LATENT = {
    "deepseek2": yarn(latent_attention("deepseek2"))
    .set(rope__scaling__yarn_log_multiplier=0.0707)
    .set(expert_group_count=4, expert_group_used_count=2),
    "deepseek2-old": latent_attention("deepseek2", absorbed=False).set(expert_gating_func=1),
    "mistral4": yarn(latent_attention("mistral4")).set(
        attention__temperature_scale=0.5, attention__temperature_length=8
    ),
}

STATES = {
    "mamba": mamba1(small("mamba", 3).rms(), range(3)).set(feed_forward_length=0, attention__head_count=0),
    "mamba-normed": mamba1(small("mamba", 3).rms(), range(3)).set(
        feed_forward_length=0, attention__head_count=0, ssm__dt_b_c_rms=True
    ),
    "jamba": mamba1(
        small("jamba", 6)
        .rms()
        .heads(4, [0, 2, 0, 0, 2, 0], 8, layers=[1, 4])
        .feed_forward(24, layers=[0, 2, 4])
        .experts(24, 6, 2, layers=[1, 3, 5]),
        [0, 2, 3, 5],
        norms=True,
    ),
    "granitehybrid": state_space(
        small("granitehybrid", 4).rms().heads(4, [0, 2, 0, 2], 8, layers=[1, 3]).feed_forward(40),
        [0, 2],
        norm="attn_norm",
    ).set(logit_scale=4.0, residual_scale=0.4, embedding_scale=3.0, attention__scale=0.2),
    "granitehybrid-experts": state_space(
        small("granitehybrid", 4).rms().heads(4, [0, 2, 0, 2], 8, layers=[1, 3]).experts(24, 6, 2, shared=20),
        [0, 2],
        norm="attn_norm",
    ).set(logit_scale=4.0, rope__scaling__finetuned=False, expert_shared_feed_forward_length=20),
    "falcon-h1": falcon_h1(normed=False),
    "falcon-h1-normed": falcon_h1(normed=True),
    "nemotron_h": nemotron_h("nemotron_h"),
    "nemotron_h_moe": nemotron_h("nemotron_h_moe", experts=True),
    "nemotron_h_moe-latent": latent_experts(nemotron_h("nemotron_h_moe", experts=True)),
    "lfm2": lfm2("lfm2").feed_forward(24),
    "lfm2-windows": lfm2("lfm2").feed_forward(24).set(attention__sliding_window=6),
    "lfm2moe": lfm2("lfm2moe")
    .feed_forward(40, layers=[0, 1])
    .experts(24, 6, 2, chosen_by=True, layers=[2, 3, 4, 5])
    .set(leading_dense_block_count=2, expert_feed_forward_length=24, expert_gating_func=2),
}

DELTA = {
    "qwen35": further_block(
        sections(delta_net("qwen35").feed_forward(40, norm="post_attention_norm").untied())
    ),
    # Which layers have attention is told layer by layer.
    "qwen35-three": sections(
        delta_net("qwen35", layers=6, keys=4, values=4, interval=3).feed_forward(24, norm="post_attention_norm")
    ).set(attention__recurrent_layers=[True, True, False, True, True, False]),
    "qwen35moe": sections(shared_experts(delta_net("qwen35moe", values=6))),
    "qwen3next": shared_experts(delta_net("qwen3next").untied()),
    "qwen3next-old": shared_experts(delta_net("qwen3next", layers=4, values=6, fused=True, interval=2)).set(
        full_attention_interval=2
    ),
    "rwkv7": rwkv7(),
}

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
    "qwen2-yarn": yarn(Model("qwen2", 2).rms(1e-6).heads(6, 2, 8, bias=True).feed_forward(72).untied().scaled(False)),
    "qwen3": Model("qwen3", 2).rms(1e-6).heads(4, 1, 16, normed="each").feed_forward(72).scaled().set(rope__freq_base=1e6),
    "qwen3moe": Model("qwen3moe", 2)
    .rms(1e-6)
    .heads(4, 2, 16, normed="each")
    .experts(32, 8, 3)
    .untied()
    .scaled()
    .set(expert_feed_forward_length=32, rope__freq_base=1e6),
    # llama.cpp rounds contexts up to 256, and chooses factors by them.
    "phi3": phi3(256, 256),
    "phi3-long": phi3(256, 16, fraction=0.75).scaled(False),
    "gpt2": gpt2(),
    "gpt2-scaled": gpt2().scaled(False),
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
    **DENSE,
    **GEMMA4,
    **EXPERTS,
    **LATENT,
    **STATES,
    **DELTA,
}


def kind(value):
    return {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}.get(
        type(value), gguf.GGUFValueType.STRING
    )


def write_model(path, model):
    writer = gguf.GGUFWriter(path, model.architecture)
    for key, value in model.keys.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif key != "general.architecture":
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


def behind_scales(model):
    """The model's tensors, with biases that are added behind the scales of their products. In feed-forward parts llama.cpp adds
    them before."""
    one = (tensor for tensor in model.tensors if tensor[0].endswith(".scale") and tensor[1] == [1])
    scales = {tensor[0]: weights(*tensor).item() for tensor in one}
    for name, extents, mean, deviation in model.tensors:
        stem, _, kind = name.rpartition(".")
        scale = scales.get(f"{stem}.scale", 1.0) if kind == "bias" and ".ffn_" in stem else 1.0
        yield [name, extents, mean * scale, deviation * scale]


def main(peers, chosen):
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen or MODELS:
            model = MODELS[name]
            tokens = [(7 * index * index + 3 * index + 1) % model.vocabulary for index in range(TOKENS)]
            path = f"{folder}/{name}.gguf"
            write_model(path, model)
            rows = checked(model, tokens, logits(peers, path, tokens))
            rows = [[float(f"{x:.7g}") for x in row] for row in rows]
            fixture = {"keys": model.keys, "tensors": [*behind_scales(model)], "tokens": tokens, "logits": rows}
            (HERE / f"{name}.json").write_text(json.dumps(fixture, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
