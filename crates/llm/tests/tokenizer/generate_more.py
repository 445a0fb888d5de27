"""Writes further fixtures of the tokenizer tests: families of the byte-level vocabulary that `generate.py` has written, and small
vocabularies of WordPiece, Unigram and BPE of plain text.

    pip install tokenizers sentencepiece
    python3 generate_more.py

Families are the regular expressions of the models' own `tokenizer.json` files.
"""

import base64
import io
import json
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from generate import CASED, CORPUS, GPT2, GPT4, HERE, LOWER, SHORT, TEXTS, UPPER, after, split, write

MORE = [
    "12345, 1234567 and 12 or 123456789012 x1234y 12ab ٣٤٥٦ ½½½½",
    "漢字かなカナ한국어 mixed漢字Text's 你好，世界！「引用」…",
    "a  b   c    d     e      f       g        h         i",
    "to be or not to be, that is e\u0301te\u0301 na\u0308ive a\u0301 b",
    "<sentinel:12>IMGIMGABCZ  text IMGIMGZ <sentinel:>",
    "ไทย ກຂ ខ្មែរ မြန်မာ ｱｲｳ ㄅㄆㄇ ｈｅｌｌｏ",
    "Ali'nin kitabı don't DON'T x's",
    "a!\n\nb!\r\n\r\nc/\n/d",
]
ALL = [text for text in TEXTS if "<" not in text and "\x00" not in text] + MORE

HAN = r"\p{Han}"
ASIAN = (
    r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF}\x{FF65}-\x{FF9F}"
    r"\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF}\x{1000}-\x{109F}\x{AA60}-\x{AA7F}"
    r"\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+"
)
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)
BLANKS = "|".join(rf"\s{{{n}}}(?!\S)" for n in [512, 256, 128, 64, 32, 16, 8, 4])
THREES = [split(r"\p{N}+"), split(r"(?=(\p{N}{3})+(?!\p{N}))")]

FAMILIES = {
    "jais-2": after(split(GPT4.replace(r"\s+(?!\S)|\s+", rf"{BLANKS}|\s{{1,2}}(?!\S)|\s") % "{1,3}")),
    "bailingmoe": after(
        split(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
        )
    ),
    "seed-coder": after(split(GPT4.replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+") % "")),
    "ufakzeka": after(split(GPT4.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)|", "") % "")),
    "laguna": after(split(r"[^\n]+|[\n]+"), split(GPT4 % "")),
    "exaone-moe": after(
        split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|"
            r" ?[^\s\p{L}\p{N}]+[\r\n\/]?|\s*[\r\n]|\s+(?!\S)|\s+"
        )
    ),
    "youtu": after(
        split(r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+"),
        split(CASED % (SHORT, SHORT, "")),
    ),
    "kimi-k2": after(
        split(
            rf"{HAN}+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^{HAN}]]*[{LOWER}&&[^{HAN}]]+{SHORT}|"
            rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^{HAN}]]+[{LOWER}&&[^{HAN}]]*{SHORT}|"
            r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
    ),
    "superbpe": after(*THREES),
    "afmoe": after(*THREES, split(ASIAN), split(DEEPSEEK3)),
    "spark2_5": after(
        split(r"\p{N}{1,3}"),
        split(r"[一-龥぀-ゟ゠-ヿ]+"),
        split(DEEPSEEK3.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]")),
        split(r"\p{N}"),
    ),
    "chameleon": after(
        split(r"<sentinel:[0-9]+>"),
        split(r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
        split(r"([\t\n]|    |  )"),
        split(r"\p{N}"),
        split(r"[\p{P}!-/:-@\[-`{-~]"),
        split(GPT2),
    ),
    "deepseek-llm": after(
        split(r"[\r\n]"),
        split(
            r"\s?[A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF}\x{01C4}-"
            r"\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D}\x{037F}\x{0386}\x{0388}-"
            r"\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5}\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-"
            r"\x{0556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}"
            r"\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-"
            r"\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}"
            r"\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}"
            r"\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}"
            r"-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}"
            r"-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}"
            r"\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-"
            r"\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}"
            r"\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}"
            r"\x{1E900}-\x{1E943}]+"
        ),
        split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
        split(r"\s+$"),
        split("[一-龥ࠀ-一가-\ud7ff]+"),
        split(r"\p{N}+"),
    ),
}


def families():
    shared = json.loads((HERE / "byte-level.json").read_text())
    vocabulary = {token: index for index, token in enumerate(shared["tokens"])}
    merges = [tuple(merge.split(" ")) for merge in shared["merges"]]
    found = {"texts": ALL}
    for name, pre in FAMILIES.items():
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=name == "youtu"))
        tokenizer.pre_tokenizer = pre
        found[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in ALL]
    return found


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=600, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS + ALL[:20], trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in ["[CLS]", "[SEP]"]]
    tokenizer.post_processor = processors.BertProcessing(ends[1], ends[0])
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    spelt = [
        token[2:] if token.startswith("##") else token if token in special else "\u2581" + token for token in tokens
    ]
    texts = ALL + ["x" * 100, "x" * 101, "\u200bzero\u00adwidth\ufeff", "ÀÉÎõü İstanbul ẞ ﬁ ①"]
    pairs = [["What is an orlop?", "The lowest deck."], ["a", ""], ["", "b c"]]
    return {
        "model": "bert",
        "tokens": spelt,
        "types": [3 if token in special else 1 for token in tokens],
        "ids": {"bos": ends[0][1], "seperator": ends[1][1], "unknown": tokenizer.token_to_id("[UNK]")},
        "cases": [[text, tokenizer.encode(text).ids] for text in texts],
        "pairs": [[*pair, tokenizer.encode(*pair).ids] for pair in pairs],
    }


def rules(path):
    """A small character map: compatible forms, accents, blanks, and beginnings of others."""
    wide = {chr(0xFEE0 + code): chr(code) for code in range(0x21, 0x7F)}
    more = {"\u2460": "1", "\u2461": "2", "\u3314": "\u30AD\u30ED", "\uFB01": "fi", "\u00A0": " ", "\u3000": " ", "\u2003": " "}
    accents = {"e\u0301": "\u00E9", "a\u0308": "\u00E4", "a\u0308\u0301": "a", "\t": " ", "\n": " ", "\r\n": " ", "\u200B": ""}
    line = lambda text: " ".join(f"{ord(c):X}" for c in text)
    path.write_text("".join(f"{line(old)}\t{line(new)}\n" for old, new in (wide | more | accents).items()))


def unigram(merged):
    """With and without runs of spaces made one."""
    model = io.BytesIO()
    tsv = pathlib.Path(tempfile.mkdtemp()) / "rules.tsv"
    rules(tsv)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS * 3 for line in text.split("\n") if line),
        model_writer=model,
        model_type="unigram",
        vocab_size=700,
        hard_vocab_limit=False,
        input_sentence_size=0,
        seed_sentencepiece_size=100000,
        character_coverage=0.98,
        remove_extra_whitespaces=merged,
        normalization_rule_tsv=str(tsv),
        user_defined_symbols=["<tool>"],
        num_threads=1,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    settings = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    kinds = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}
    pieces = settings.pieces
    texts = ALL + ["ＦＵＬＬ ｗｉｄｔｈ ①② ㌔ ﬁne", "  lead and   trail  ", "a <tool> b"]
    return {
        "model": "t5",
        "tokens": [piece.piece for piece in pieces],
        "scores": [piece.score for piece in pieces],
        "types": [kinds[piece.type] for piece in pieces],
        "ids": {"bos": processor.bos_id(), "eos": processor.eos_id(), "unknown": processor.unk_id()},
        "merges_spaces": merged,
        "map": base64.b64encode(settings.normalizer_spec.precompiled_charsmap).decode(),
        "cases": [[text, processor.encode(text)] for text in texts],
    }


def plain():
    """BPE of plain text with bytes for what has no token, as Gemma 4 has it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    trainer = trainers.BpeTrainer(
        vocab_size=900,
        special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)],
        limit_alphabet=150,
        show_progress=False,
    )
    lines = [line for text in CORPUS * 2 for line in text.split("\n")]
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ["\n", "\n\n"]])
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    special = tokens[:4]
    kind = lambda token: 3 if token in special else 6 if token.startswith("<0x") else 1
    return {
        "model": "gemma4",
        "tokens": tokens,
        "types": [kind(token) for token in tokens],
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "cases": [[text, tokenizer.encode(text).ids] for text in ALL if "\n\n\n" not in text],
    }


if __name__ == "__main__":
    write("families", families())
    write("bert", word_piece())
    write("t5", unigram(True))
    write("t5-spaces", unigram(False))
    write("gemma4", plain())
