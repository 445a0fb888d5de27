"""Writes the fixtures of the tokenizer and chat template tests.

    pip install tokenizers sentencepiece jinja2 rwkv
    python3 generate.py

Each fixture is a small vocabulary, trained here on a text written for it, with texts and the ids that the
reference libraries give for them. The outcome depends on the versions of these libraries, so it is committed.
"""

import importlib.util
import io
import json
import pathlib
import runpy

import jinja2
import jinja2.sandbox
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent / "fixtures"

# Words, numbers and signs that tokens can be made of.
CORPUS = [
    "The ship carries grain, timber and rope; the orlop deck lies below the waterline.",
    "She'll say it's fine, they've said we're late, I'd wait, I'm here, don't go, you'll see.",
    "In 1969 about 650,000,000 people watched; 12345 of 67890 wrote 3.14159 letters.",
    "def stow(cargo):\n    for crate in cargo:\n        if crate.fits():\n            yield crate\n\n\n",
    "int main(void) {\n\tprintf(\"%d\\n\", 42);\n\treturn 0;\n}\n",
    "Der Kapitän fährt über die Förde, où l'été naît; el niño comió piñas en São Tomé.",
    "船は海を渡り、港に着いた。荷物は倉庫にある。東京から大阪まで。我们把货物放在船舱里。",
    "배는 바다를 건너 항구에 도착했다. Корабль плывёт по морю. Το πλοίο πλέει. السفينة في البحر.",
    "नाव समुद्र में है। เรืออยู่ในทะเล 🚢🦀🏽 ⚓️ 👩‍👩‍👧‍👦 €5 ½ ² Ⅷ ①",
    "  two  spaces   three    four\t\ttabs \r\n windows \u00a0no-break \u2003em\u3000wide",
    "HelloWorld JSONParser iPhone McDonald ÄÖÜ straße ABCdef 'quoted' \"double\" (round) [square] {curly}",
    "a=b+c; x!=y && p||q; 5%2 <= 3^2 ~z `code` $HOME #tag @name http://example.org/path?x=1&y=2",
]

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\t\t\n  \r\n",
    "a",
    " a",
    "Hello, world!",
    "hello world  hello   world",
    "The ship's crew said they'll load 12345678 crates in 2024, I'd SAY IT'S 3.14159.",
    "DON'T I'LL we'Ve 's 'S 'ſ can't've",
    "    for crate in cargo:\n\n        yield crate\n",
    "line\r\nline\r\n\r\n  indented\t\ttabs  \n \n  \n",
    "trailing spaces   ",
    "   leading spaces",
    "日本語のテキスト、東京。我们在船舱里。",
    "배는 바다를 건너 Корабль Το πλοίο السفينة",
    "नाव समुद्र में है। เรืออยู่ในทะเล e\u0301 a\u0308o\u0308",
    "🚢 🦀🏽 ⚓️ 👩‍👩‍👧‍👦 emoji🦀in🚢words",
    "½²Ⅷ①٣४ 1½ 100%",
    "no-break\u00a0space \u2003em\u3000wide\u2028line\u0085next",
    "HelloWorld JSONParser ÄÖÜstraße ABCdef McDonald's iPhone'S",
    "a=b+c; x!=y&&p||q; ((nested)) [[1,2],[3]] $5.00 -> `code`\n//comment/\n",
    "http://example.org/path?x=1&y=2#top user@host",
    "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>",
    "before <|im_end|>after<|im_end|>  spaced  <|im_end|>",
    "<tool>x</tool> <tool > <|im_end",
    "\u0000\u0001\u007f \ufffd \U0010ffff \ue000",
    "x" * 70,
    "ab" * 40,
    " " * 33 + "x" + " " * 40,
    "1234567890" * 4,
    "!" * 20 + "?" * 3 + "…",
    "we saw 42 and 7 of 42 birds: ``code`` x`y 1`2",
    "word " * 12,
]

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
DEFINED = ["<tool>", "</tool>"]

GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*%s|"
    r"\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def after(*stages):
    return pre_tokenizers.Sequence([*stages, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

FAMILIES = {
    "default": after(split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]")),
    "bloom": after(split(r" ?[^(\s|[.,!?…。，、।۔،])]+")),
    "deepseek-coder": after(
        split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-\ud7ff]+"), split(r"\p{N}")
    ),
    "gpt-2": BYTE_LEVEL,
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL]),
    "llama-bpe": after(split(GPT4 % "{1,3}")),
    "qwen2": after(split(GPT4 % "")),
    "gpt-4o": after(split(CASED % (SHORT, SHORT, "{1,3}"))),
    "tekken": after(split(CASED % ("", "", ""))),
    "deepseek-v3": after(
        split(r"\p{N}{1,3}"),
        split(r"[一-龥぀-ゟ゠-ヿ]+"),
        split(
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
            r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
        ),
    ),
    "falcon": pre_tokenizers.Sequence(
        [split(r"[\p{P}\$\+<=>\^~\|`]+"), BYTE_LEVEL, split("[0-9][0-9][0-9]")]
    ),
}


def vocabulary():
    """One vocabulary for all byte-level families.

    It is trained on whole texts, the tested ones among them, so that many of its tokens cross the borders of
    words: cutting a text at another place gives other tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS + TEXTS * 2, trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in DEFINED])
    return tokenizer


def vocabulary_fixture(tokenizer):
    tokens = [tokenizer.id_to_token(index) for index in range(tokenizer.get_vocab_size())]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return {
        "tokens": tokens,
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        "types": [3 if token in SPECIAL else 4 if token in DEFINED else 1 for token in tokens],
    }


def byte_level(tokenizer, name, pre, whole_words):
    description = json.loads(tokenizer.to_str())
    description["model"]["ignore_merges"] = whole_words
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    return {
        "model": "gpt2",
        "pre": name,
        "cases": [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in TEXTS],
        "decoded": [tokenizer.decode(tokenizer.encode(text).ids) for text in TEXTS],
    }


def sentence_piece(prefix, defined, name=None):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS for line in text.split("\n") if line),
        model_writer=model,
        model_type="bpe",
        vocab_size=700,
        byte_fallback=True,
        character_coverage=0.98,
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        split_digits=True,
        allow_whitespace_only_pieces=True,
        control_symbols=["<|im_start|>", "<|im_end|>"],
        user_defined_symbols=defined,
        num_threads=1,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = processor.get_piece_size()

    def kind(index):
        if processor.is_unknown(index):
            return 2
        if processor.is_control(index):
            return 3
        if processor.id_to_piece(index) in defined:
            return 4
        return 6 if processor.is_byte(index) else 1

    def piece(index):
        text = processor.id_to_piece(index)
        return text.replace("\u2581", " ") if text in defined else text

    # The library itself never takes control tokens from text, so these texts have none.
    texts = [text for text in TEXTS if "<|im" not in text and "\x00" not in text]
    return {
        "model": "llama",
        "name": name,
        "space_prefix": prefix,
        "tokens": [piece(index) for index in range(count)],
        "scores": [round(processor.get_score(index), 6) for index in range(count)],
        "types": [kind(index) for index in range(count)],
        "cases": [[text, processor.encode(text)] for text in texts],
        "decoded": [processor.decode(processor.encode(text)) for text in texts],
    }


def phi3(pieces):
    """The vocabulary of a SentencePiece fixture, whose special tokens take the white space after them."""
    tokens, scores, types = pieces["tokens"], pieces["scores"], pieces["types"]
    ids = {token: index for index, token in enumerate(tokens)}
    usual = [token for token, kind in zip(tokens, types) if kind == 1]
    merges = []
    for piece in sorted(usual, key=lambda piece: -scores[ids[piece]]):
        halves = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        merges += sorted((pair for pair in halves if all(half in ids for half in pair)), key=lambda p: (ids[p[0]], ids[p[1]]))
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    for token, kind in zip(tokens, types):
        if kind in [2, 3]:
            strips = token not in ["<unk>", "<s>"]
            tokenizer.add_special_tokens([AddedToken(token, rstrip=strips, normalized=False, special=True)])
    texts = [text for text in TEXTS if "\x00" not in text] + [
        "<|im_start|> \n\t user<|im_end|>   <|im_end|>\n",
        "a <|im_end|> b <s> c </s> d",
    ]
    return {
        **pieces,
        "name": "Phi-3 tiny",
        "cases": [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts],
        "decoded": [tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts],
    }


TEMPLATES = {
    "turns": "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou sort cargo.<|im_end|>\n{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "headers": "{{- bos_token }}\n{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system = messages[0]['content'] | trim %}\n    {%- set messages = messages[1:] %}\n"
    "{%- else %}\n    {%- set system = '' %}\n{%- endif %}\n"
    "{%- if tools is defined and tools %}{{ tools | tojson(indent=4) }}{% endif %}\n"
    "{{- '<|header|>system<|/header|>\\n\\n' + system + '<|eot_id|>' }}\n"
    "{%- for message in messages %}\n"
    "    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}\n"
    "        {{- '<|header|>' + message.role + '<|/header|>\\n\\n' + message.content | trim + '<|eot_id|>' }}\n"
    "    {%- endif %}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|header|>assistant<|/header|>\\n\\n' }}\n{%- endif %}\n",
    "alternating": "{{ bos_token }}{% set ns = namespace(system='', count=0) %}"
    "{% for message in messages %}{% if message.role == 'system' %}{% set ns.system = message.content %}"
    "{% else %}{% if (message.role == 'user') != (ns.count % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.count = ns.count + 1 %}{% endif %}{% endfor %}"
    "{% for message in messages if message.role != 'system' %}"
    "<turn>{{ 'model' if message.role == 'assistant' else message.role }}\n"
    "{% if loop.first and ns.system %}{{ ns.system.strip() }}\n\n{% endif %}{{ message.content.strip() }}</turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<turn>model\n{% endif %}",
    "thinking": "{%- for message in messages[::-1] %}{%- set index = (messages | length - 1) - loop.index0 %}"
    "{{- index }}{{ ',' if not loop.last else ';' }}{%- endfor %}"
    "{%- for message in messages %}"
    "{%- set content = message.content %}"
    "{%- if message.role == 'assistant' and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{%- if content.startswith('Hi') or content.endswith('?') %}<q>{%- endif %}"
    "{{- message.role | upper + ': ' + content.rstrip() | replace('a', 'A') }}{{ eos_token }}\n"
    "{%- endfor %}"
    "{%- if add_generation_prompt is defined and add_generation_prompt %}{{- '>' }}{%- endif %}",
    "blocks": "{% for message in messages %}\n    {% if message['role'] == 'user' %}\n"
    "<user>{{ message['content'] }}\n    {% elif message['role'] == 'assistant' %}\n"
    "<bot>{{ message['content'] }}{{ eos_token }}\n    {% endif %}\n{% endfor %}\nend\n",
    "tools": "{%- if tools is iterable and tools | length > 0 %}<tools>\n{%- for tool in tools %}{{ tool | tojson }}\n"
    "{%- endfor %}</tools>{%- endif %}"
    "{%- for message in messages %}<{{ message.role }}>"
    "{%- if message.role == 'tool' %}{{ message.name }}/{{ message.tool_call_id }}={%- endif %}"
    "{%- if message.reasoning_content is defined and not loop.last %}"
    "{% generation %}<think>{{ message.reasoning_content | trim }}</think>{% endgeneration %}{%- endif %}"
    "{{- message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}"
    "<call>{{ {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}</call>"
    "{%- for key, value in call.function.arguments.items() %}{{ key }}:{{ value }},{% endfor %}{% endfor %}\n"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}<assistant>{{ '<think></think>' if enable_thinking is false }}{% endif %}",
    "quoting": "{{ messages | map(attribute='content') | list | tojson }} {{ messages[0] | tojson }}",
}

CHATS = [
    [["user", "Hi there?"]],
    [["system", "  Be brief.  "], ["user", "Name a \"deck\" & <hold>"], ["assistant", "<think>\nhm\n</think>\n\nOrlop\t"], ["user", "Why\n\u00e9\\?"]],
    [["user", "one"], ["user", "two"]],
]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "stow",
            "description": "Puts <cargo> & rope below",
            "parameters": {"type": "object", "properties": {"what": {"type": "string"}, "count": {"type": "integer"}}},
        },
    }
]
CALL = {"id": "c1", "type": "function", "function": {"name": "stow", "arguments": {"what": "r\u00e9 \"x\"", "count": 2}}}
TOOL_CHATS = [
    [{"role": "user", "content": "Stow."}],
    [
        {"role": "user", "content": "Stow."},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": " which? "},
        {"role": "tool", "content": "done", "tool_call_id": "c1", "name": "stow"},
        {"role": "assistant", "content": "Stowed.", "reasoning_content": "it is done"},
    ],
]


def chats():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    environment.globals["raise_exception"] = refuse
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    cases = []
    for name, source in TEMPLATES.items():
        # `transformers` has this block for training; it writes nothing.
        source = source.replace("{% generation %}", "").replace("{% endgeneration %}", "")
        template = environment.from_string(source)
        for chat in CHATS:
            for prompt in [True, False]:
                messages = [{"role": role, "content": content} for role, content in chat]
                try:
                    text = template.render(
                        messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>"
                    )
                except jinja2.exceptions.TemplateError as error:
                    cases.append([name, chat, prompt, None, str(error)])
                else:
                    cases.append([name, chat, prompt, text, None])
    template = environment.from_string(
        TEMPLATES["tools"].replace("{% generation %}", "").replace("{% endgeneration %}", "")
    )
    tools = []
    for chat in TOOL_CHATS:
        for known in [TOOLS, None]:
            for variables in [{}, {"enable_thinking": False}]:
                text = template.render(messages=chat, tools=known, add_generation_prompt=True, **variables)
                tools.append([chat, known, variables, text])
    return {"templates": TEMPLATES, "cases": cases, "tools": tools}


def rwkv():
    """Tokens of RWKV's vocabulary that are bytes, or a part of the texts, and the ids of its package for them."""
    folder = pathlib.Path(importlib.util.find_spec("rwkv").submodule_search_locations[0])
    module = runpy.run_path(str(folder / "rwkv_tokenizer.py"))
    whole = module["TRIE_TOKENIZER"](folder / "rwkv_vocab_v20230424.txt")
    text = "\n".join(CORPUS + TEXTS).encode()
    # Some, so that the longest token is often shorter than in the whole vocabulary.
    chosen = [token for id, token in whole.idx2token.items() if len(token) == 1 or id % 3 and token in text]
    tokens = ["<s>"] + [repr(token)[2:-1] for token in chosen]
    small = module["TRIE_TOKENIZER"].__new__(module["TRIE_TOKENIZER"])
    small.root = module["TRIE"]()
    for id, token in enumerate(chosen):
        small.root.add(token, val=(token, id + 1))
    cases = [[text, small.encode(text)] for text in TEXTS]
    return {
        "model": "rwkv",
        "tokens": tokens,
        "types": [3] + [1] * len(chosen),
        "cases": cases,
        "decoded": [text for text, _ in cases],
    }


def write(name, fixture):
    HERE.mkdir(exist_ok=True)
    text = json.dumps(fixture, ensure_ascii=False, separators=(",", ":"))
    (HERE / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    shared = vocabulary()
    write("byte-level", vocabulary_fixture(shared))
    for family, pre in FAMILIES.items():
        write(family, byte_level(shared, family, pre, family in ["llama-bpe", "tekken"]))
    llama = sentence_piece(True, [])
    write("llama", llama)
    write("phi3", phi3(llama))
    write("gemma", sentence_piece(False, ["\u2581\u2581", "\u2581\u2581\u2581\u2581", "<tool>", "</tool>"]))
    write("chat", chats())
    write("rwkv", rwkv())
