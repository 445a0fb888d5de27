"""Programs written for `llama_cpp.Llama`, with the import changed::

    from orlop.llama_cpp import Llama
    llm = Llama(model_path="model.gguf", n_ctx=2048)
    llm("Q: Name the planets in the solar system? A: ", max_tokens=32, stop=["Q:", "\\n"], echo=True)

The names, arguments and results are those of llama-cpp-python's high-level class. Arguments that tune llama.cpp's internals are
accepted where they change no result. What cannot be done is refused: tools, images, LoRA, the C functions.
"""

from __future__ import annotations

import fnmatch
import json
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

import orlop
from orlop import __version__ as __version__
from orlop._arrays import to_floats

Json = dict[str, Any]
LogitsProcessor = Callable[[npt.NDArray[np.intc], npt.NDArray[np.single]], npt.NDArray[np.single]]
StoppingCriteria = Callable[[npt.NDArray[np.intc], npt.NDArray[np.single]], bool]

LLAMA_DEFAULT_SEED = 0xFFFFFFFF

_CACHE_TYPES = {None: "f16", 0: "f32", 1: "f16", 2: "q4_0", 8: "q8_0", 30: "bf16"}

#: Arguments that are accepted, and change no result here.
_WITHOUT_EFFECT = {
    "use_mmap", "use_mlock", "numa", "n_threads_batch", "flash_attn", "offload_kqv", "op_offload", "swa_full", "verbose",
    "last_n_tokens_size", "no_perf", "main_gpu", "kv_unified", "split_mode", "spm_infill",
}  # fmt: skip

#: Samplers that are not here, with the values that turn them off.
_SAMPLERS_OFF: dict[str, float] = {"typical_p": 1.0, "tfs_z": 1.0, "mirostat_mode": 0}

#: Settings of samplers that are off.
_OF_SAMPLERS_OFF = {"mirostat_tau", "mirostat_eta", "penalize_nl"}


def _check_others(function: str, others: Mapping[str, Any]) -> None:
    """Refuses what would change a text, and what `llama_cpp.Llama` does not have."""
    for name, value in others.items():
        if name in _OF_SAMPLERS_OFF or (name in _SAMPLERS_OFF and value in (None, _SAMPLERS_OFF[name])):
            continue
        if name in _SAMPLERS_OFF:
            raise NotImplementedError(f"orlop.llama_cpp.Llama has no {name}: {value} is given, {_SAMPLERS_OFF[name]} is off")
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")


class LogitsProcessorList(list[LogitsProcessor]):
    """Functions that change logits, one after the other."""

    def __call__(self, input_ids: npt.NDArray[np.intc], scores: npt.NDArray[np.single]) -> npt.NDArray[np.single]:
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(list[StoppingCriteria]):
    """Functions that end a text."""

    def __call__(self, input_ids: npt.NDArray[np.intc], logits: npt.NDArray[np.single]) -> bool:
        return any(stops(input_ids, logits) for stops in self)


@dataclass(frozen=True)
class LlamaState:
    """What `Llama.save_state` keeps."""

    #: Tokens that were evaluated one by one.
    tokens: list[int]
    #: The last prompt and its text.
    text: list[int]
    state: bytes
    seed: int
    drawn: int


@dataclass(frozen=True)
class LlamaGrammar:
    """What a text has to match."""

    text: str | None = None
    schema: Json | None = None

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """A grammar in llama.cpp's syntax."""
        return cls(text=grammar)

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """JSON that is valid for a schema."""
        return cls(schema=json.loads(json_schema))

    def options(self) -> Json:
        """The options of `orlop.Model.generate`."""
        return {"grammar": self.text} if self.text is not None else {"json_schema": _closed(self.schema) or True}


def _closed(schema: Any) -> Any:
    """A schema whose objects have no other members than their `properties`, unless it says so: what llama.cpp makes of it."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(schema.get(key), dict):
            closed[key] = {name: _closed(part) for name, part in schema[key].items()}
    for key in ("items", "prefixItems", "anyOf", "oneOf"):
        if key in schema:
            closed[key] = _closed(schema[key])
    # The parts of `allOf` hold together.
    if "properties" in schema and "allOf" not in schema:
        closed.setdefault("additionalProperties", False)
    return closed


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    differ = (i for i, (x, y) in enumerate(zip(a, b)) if x != y)
    return next(differ, min(len(a), len(b)))


class LlamaRAMCache:
    """States behind texts, for models that share it (`Llama.set_cache`). The oldest ones go first.

    What a prompt has in common with the last text of a model is in that model's own cache, with or without this one.
    """

    def __init__(self, capacity_bytes: int = 2 << 30) -> None:
        self.capacity_bytes = capacity_bytes
        self._states: dict[tuple[int, ...], LlamaState] = {}

    @property
    def cache_size(self) -> int:
        """Bytes of all states."""
        return sum(len(state.state) for state in self._states.values())

    def _nearest(self, tokens: Sequence[int]) -> tuple[int, ...] | None:
        nearest = max(self._states, key=lambda known: _common(known, tokens), default=())
        return nearest if _common(nearest, tokens) > 0 else None

    def __contains__(self, tokens: Sequence[int]) -> bool:
        return self._nearest(tokens) is not None

    def __getitem__(self, tokens: Sequence[int]) -> LlamaState:
        """The state that has the longest beginning in common with a prompt."""
        nearest = self._nearest(tokens)
        if nearest is None:
            raise KeyError("no text begins as this prompt")
        # The newest one is the last.
        self._states[nearest] = state = self._states.pop(nearest)
        return state

    def __setitem__(self, tokens: Sequence[int], state: LlamaState) -> None:
        self._states.pop(tuple(tokens), None)
        self._states[tuple(tokens)] = state
        while self.cache_size > self.capacity_bytes:
            self._states.pop(next(iter(self._states)))


LlamaCache = LlamaRAMCache


class LlamaPromptLookupDecoding:
    """Drafts tokens by looking up the last ones in the text (`Llama(draft_model=…)`)."""

    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10) -> None:
        self.max_ngram_size = max_ngram_size
        self.num_pred_tokens = num_pred_tokens

    @staticmethod
    def find_candidate_pred_tokens(
        input_ids: npt.NDArray[np.intc], max_ngram_size: int, num_pred_tokens: int
    ) -> npt.NDArray[np.intc]:
        """What followed the first place with the longest ending of the tokens, up to a length."""
        tokens = np.asarray(input_ids, dtype=np.intc)
        for size in range(min(max_ngram_size, len(tokens) - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], size)
            places = np.flatnonzero((windows == tokens[-size:]).all(axis=1))
            if len(places) > 0:
                begin = int(places[0]) + size
                return tokens[begin : begin + num_pred_tokens]
        return tokens[:0]

    def __call__(self, input_ids: npt.NDArray[np.intc], /, **kwargs: Any) -> npt.NDArray[np.intc]:
        """A draft behind tokens."""
        return self.find_candidate_pred_tokens(input_ids, self.max_ngram_size, self.num_pred_tokens)


class LlamaTokenizer:
    """The tokens of a model, as `Llama.tokenizer` gives them."""

    def __init__(self, llama: Llama) -> None:
        self._llama = llama

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> list[int]:
        return self._llama.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        return self._llama.detokenize(tokens, prev_tokens, special)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> list[int]:
        return self.tokenize(text.encode(), add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenize(tokens).decode(errors="ignore")


class Llama:
    """A model with the interface of `llama_cpp.Llama`."""

    def __init__(
        self,
        model_path: str,
        *,
        n_gpu_layers: int = 0,
        vocab_only: bool = False,
        seed: int = LLAMA_DEFAULT_SEED,
        n_ctx: int = 512,
        n_batch: int = 512,
        n_ubatch: int = 512,
        n_threads: int | None = None,
        logits_all: bool = False,
        embedding: bool = False,
        chat_format: str | None = None,
        chat_handler: None = None,
        draft_model: LlamaPromptLookupDecoding | None = None,
        type_k: int | None = None,
        type_v: int | None = None,
        **others: Any,
    ) -> None:
        refused = [name for name, value in others.items() if name not in _WITHOUT_EFFECT and value is not None]
        if refused:
            raise TypeError(f"orlop.llama_cpp.Llama does not know {', '.join(sorted(refused))}")
        if chat_handler is not None or chat_format not in (None, "chatml"):
            raise NotImplementedError(
                f"the chat format {chat_format or chat_handler!r} is not known: leave it out to use the model's own"
            )
        self.model_path = model_path
        self.chat_format = chat_format
        self._seed = self._first_seed(seed)
        self._drawn = 0
        self._model: orlop.Model | None = None
        self._embedder = orlop.Embedder(model_path, context=n_ctx or None, threads=n_threads) if embedding else None
        self._sequence: orlop.Sequence | None = None
        self._cache: LlamaRAMCache | None = None
        self._text: list[int] = []
        self._input: list[int] = []
        self._logits: npt.NDArray[np.single] = np.empty((0, 0), dtype=np.single)
        self._logits_all = logits_all
        if vocab_only or embedding:
            self._tokenizer: orlop.Tokenizer | orlop.Model = orlop.Tokenizer(model_path)
            return
        devices = ["cpu"]
        if n_gpu_layers != 0:
            devices = [device["name"] for device in orlop.devices() if device["kind"] != "cpu"] + ["cpu"]
        layers = n_gpu_layers if n_gpu_layers > 0 and len(devices) > 1 else None
        self._model = self._tokenizer = orlop.Model(
            model_path,
            context=n_ctx or None,
            batch=min(n_batch, n_ubatch),
            threads=n_threads or None,
            sequences=1,
            devices=devices,
            layers=layers,
            all_logits=logits_all,
            cache_type_k=_CACHE_TYPES[type_k],
            cache_type_v=_CACHE_TYPES[type_v],
            lookup=draft_model.num_pred_tokens if draft_model else 0,
        )

    @classmethod
    def from_pretrained(
        cls, repo_id: str, filename: str, local_dir: str | None = None, cache_dir: str | None = None, **options: Any
    ) -> Llama:
        """A model of the Hugging Face Hub; needs the package `huggingface_hub`."""
        try:
            import huggingface_hub  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError("Llama.from_pretrained needs the package huggingface_hub: install it with pip") from error
        files = [file for file in huggingface_hub.list_repo_files(repo_id) if fnmatch.fnmatch(file, filename)]
        if len(files) != 1:
            raise ValueError(f"{len(files)} files of {repo_id} match {filename}, and one is needed: {files}")
        path = huggingface_hub.hf_hub_download(repo_id, files[0], local_dir=local_dir, cache_dir=cache_dir)
        return cls(model_path=path, **options)

    # --- the model ---

    @property
    def _loaded(self) -> orlop.Model:
        if self._model is None:
            raise ValueError("the model was loaded with vocab_only or embedding, so it makes no texts")
        return self._model

    def close(self) -> None:
        """Frees the model's memory."""
        if self._embedder is not None:
            self._embedder.close()
        if self._model is not None:
            self._sequence = None
            self._model.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def metadata(self) -> dict[str, str]:
        """What is known of the file's metadata."""
        model = self._loaded
        known = {"general.architecture": model.architecture, "tokenizer.chat_template": model.chat_template}
        return known | ({"general.name": model.name} if model.name else {})

    def n_ctx(self) -> int:
        return self._loaded.context

    def n_embd(self) -> int:
        return self._loaded.embedding

    def n_vocab(self) -> int:
        return self._loaded.vocabulary

    def token_bos(self) -> int:
        return -1 if self._tokenizer.bos is None else self._tokenizer.bos

    def token_eos(self) -> int:
        return -1 if self._tokenizer.eos is None else self._tokenizer.eos

    def token_nl(self) -> int:
        tokens = self._tokenizer.tokenize("\n")
        return tokens[-1] if tokens else -1

    def tokenizer(self) -> LlamaTokenizer:
        return LlamaTokenizer(self)

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The tokens of a text."""
        tokens = self._tokenizer.tokenize(text.decode(errors="replace"), special=special)
        bos = self._tokenizer.bos
        adds = add_bos and bos is not None and self._tokenizer.tokenize("", prompt=True)[:1] == [bos]
        return [bos, *tokens] if adds and bos is not None else tokens

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """The bytes of tokens. The space that some tokenizers put before a text goes with its BOS."""
        text = self._tokenizer.token_bytes(list(tokens), special=special)
        begins = bool(tokens) and tokens[0] == self.token_bos()
        return text[1:] if begins and not special and text[:1] == b" " else text

    def set_cache(self, cache: LlamaRAMCache | None) -> None:
        """Keeps the state behind each text, and goes on from the one that a prompt begins with."""
        self._cache = cache

    def _first_seed(self, seed: int) -> int:
        return int.from_bytes(uuid.uuid4().bytes[:4]) if seed in (LLAMA_DEFAULT_SEED, -1) else seed

    def set_seed(self, seed: int) -> None:
        """Starts the random numbers of later texts anew."""
        self._seed, self._drawn = seed, 0

    def _next_seed(self, seed: int | None) -> int:
        if seed is not None:
            return self._first_seed(seed)
        self._drawn += 1
        return self._seed + self._drawn * 0x9E3779B9

    # --- tokens and logits ---

    @property
    def n_tokens(self) -> int:
        """Tokens that were evaluated."""
        return len(self._input)

    @property
    def input_ids(self) -> npt.NDArray[np.intc]:
        """The tokens that were evaluated."""
        return np.array(self._input, dtype=np.intc)

    @property
    def scores(self) -> npt.NDArray[np.single]:
        """Logits of the evaluated tokens: of all with `logits_all`, else of the last one."""
        return self._logits

    def reset(self) -> None:
        """Forgets the evaluated tokens."""
        self._go_back(0)

    def _go_back(self, length: int) -> int:
        if self._sequence is None:
            self._sequence = self._loaded.sequence()
        left = self._sequence.truncate(length)
        self._input = self._input[:left]
        self._logits = self._logits[:left] if self._logits_all else self._logits[:0]
        return left

    def eval(self, tokens: Sequence[int]) -> None:
        """Evaluates tokens behind those that were evaluated."""
        if self._sequence is None:
            self._sequence = self._loaded.sequence()
        logits = self._sequence.feed(tokens, all=self._logits_all)
        self._input += tokens
        if self._logits_all:
            before = self._logits.reshape(-1, self.n_vocab())
            self._logits = np.concatenate([before, logits])
        else:
            self._logits = logits.reshape(1, -1)

    def sample(
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logits_processor: LogitsProcessorList | None = None,
        idx: int | None = None,
        **others: Any,
    ) -> int:
        """A token behind the evaluated ones, or with `logits_all` behind the one at `idx`."""
        if others.pop("grammar", None) is not None:
            raise NotImplementedError("tokens one by one (sample, generate) have no grammar")
        _check_others("sample", others)
        if idx is not None and not self._logits_all and idx != self.n_tokens - 1:
            raise ValueError("logits of other tokens than the last one need logits_all")
        row = self._logits[idx if idx is not None and self._logits_all else -1]
        sampler = self._sampler(
            self._next_seed(None), top_k, top_p, min_p, temp, repeat_penalty, frequency_penalty, presence_penalty, {}
        )
        for token in self._input[-64:]:
            sampler.accept(token)
        if logits_processor is not None:
            row = logits_processor(self.input_ids, row.copy())
        return sampler.sample(row)

    def _sampler(
        self, seed: int, top_k: int, top_p: float, min_p: float, temp: float, repeat: float, frequency: float,
        presence: float, bias: Mapping[int, float],
    ) -> orlop.Sampler:  # fmt: skip
        return orlop.Sampler(
            seed=seed,
            top_k=max(top_k, 0),
            top_p=top_p,
            min_p=min_p,
            temperature=temp,
            repeat_penalty=repeat,
            frequency_penalty=frequency,
            presence_penalty=presence,
            logit_bias=bias,
        )

    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        logits_processor: LogitsProcessorList | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        seed: int | None = None,
        logit_bias: Mapping[int, float] | None = None,
        grammar: LlamaGrammar | None = None,
        **others: Any,
    ) -> Generator[int, Sequence[int] | None, None]:
        """Tokens behind others, without an end. What is common with the evaluated tokens is not evaluated again."""
        if grammar is not None:
            raise NotImplementedError("tokens one by one (generate, logprobs, logits processors) have no grammar")
        _check_others("generate", others)
        return self._generated(
            tokens, reset, logits_processor, stopping_criteria,
            self._sampler(
                self._next_seed(seed), top_k, top_p, min_p, temp, repeat_penalty, frequency_penalty, presence_penalty,
                logit_bias or {},
            ),
        )  # fmt: skip

    def _generated(
        self,
        tokens: Sequence[int],
        reset: bool,
        logits_processor: LogitsProcessorList | None,
        stopping_criteria: StoppingCriteriaList | None,
        sampler: orlop.Sampler,
    ) -> Generator[int, Sequence[int] | None, None]:
        for token in tokens:
            sampler.accept(token)
        new = list(tokens)
        if reset:
            common = _common(self._input, new)
            exact = common == len(new) == len(self._input) and len(self._logits) > 0
            new = [] if exact else new[self._go_back(min(common, len(new) - 1)) :]
        while True:
            if new:
                self.eval(new)
            row = self._logits[-1]
            if logits_processor is not None:
                row = logits_processor(self.input_ids, row.copy())
            token = sampler.sample(row)
            if stopping_criteria is not None and stopping_criteria(self.input_ids, row):
                return
            sent = yield token
            new = [token, *(sent or ())]

    def save_state(self) -> LlamaState:
        """What was evaluated, and the state of the random numbers."""
        text, state = self._loaded._model.save_state()
        return LlamaState(list(self._input), text, state, self._seed, self._drawn)

    def load_state(self, state: LlamaState) -> None:
        """Goes back to a saved state."""
        self._text = self._loaded.load_state(state.state)
        self._seed, self._drawn = state.seed, state.drawn
        self._go_back(0)
        if state.tokens:
            self.eval(state.tokens)

    # --- texts ---

    def __call__(self, prompt: str, **options: Any) -> Json | Iterator[Json]:
        """As `create_completion`."""
        return self.create_completion(prompt, **options)

    def create_completion(
        self,
        prompt: str | Sequence[int],
        suffix: str | None = None,
        max_tokens: int | None = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        logprobs: int | None = None,
        echo: bool = False,
        stop: str | Sequence[str] | None = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: int | None = None,
        model: str | None = None,
        stopping_criteria: StoppingCriteriaList | None = None,
        logits_processor: LogitsProcessorList | None = None,
        grammar: LlamaGrammar | None = None,
        logit_bias: Mapping[str | int, float] | None = None,
        **others: Any,
    ) -> Json | Iterator[Json]:
        """Continues a text, in the form of OpenAI's completions."""
        if suffix is not None:
            raise NotImplementedError("orlop.llama_cpp.Llama has no text behind the new one (suffix)")
        _check_others("create_completion", others)
        if logprobs is not None and not self._logits_all:
            raise ValueError("logprobs is not supported for models created with logits_all=False")
        sampling: Json = {
            "temperature": temperature, "top_p": top_p, "min_p": min_p, "top_k": max(top_k, 0),
            "frequency_penalty": frequency_penalty, "presence_penalty": presence_penalty, "repeat_penalty": repeat_penalty,
        }  # fmt: skip
        tokens = self.tokenize(prompt.encode(), special=True) if isinstance(prompt, str) else list(prompt)
        limit = max_tokens if max_tokens is not None and max_tokens > 0 else None
        texts = [stop] if isinstance(stop, str) else list(stop or ())
        bias = {int(token): value for token, value in (logit_bias or {}).items()}
        name = model or self.model_path
        kind = "cmpl"
        if logprobs is not None or stopping_criteria or logits_processor:
            if grammar is not None:
                raise NotImplementedError("logprobs, stopping criteria and logits processors exclude a grammar")
            parts = self._parts_by_token(
                tokens, limit, texts, logprobs, seed, bias, sampling, logits_processor, stopping_criteria
            )
        else:
            parts = self._parts(tokens, limit, texts, seed, bias, sampling | (grammar.options() if grammar else {}))
        head = prompt if isinstance(prompt, str) else self.detokenize(tokens).decode(errors="ignore")
        made = _Making(f"{kind}-{uuid.uuid4()}", int(time.time()), name, len(tokens))
        head = head if echo else ""
        if self._cache is not None:
            parts = self._remembered(self._cache, tokens, parts)
        return made.chunks(parts, head) if stream else made.completion(parts, head)

    def _remembered(self, cache: LlamaRAMCache, tokens: list[int], parts: Iterator[_Part]) -> Iterator[_Part]:
        """The same parts, from the nearest state of the cache, which gets that behind them."""
        if tokens in cache:
            state = cache[tokens]
            if _common(state.text, tokens) > _common(self._text, tokens):
                self.load_state(state)
        yield from parts
        state = self.save_state()
        self._text = state.text
        cache[state.text] = state

    def _parts(
        self, tokens: list[int], limit: int | None, stop: list[str], seed: int | None, bias: dict[int, float], sampling: Json
    ) -> Iterator[_Part]:
        stream = self._loaded.stream(
            tokens, max_tokens=limit, stop=stop, seed=self._next_seed(seed), logit_bias=bias, **cast(Any, sampling)
        )
        with stream:
            for piece in stream:
                yield _Part(piece)
            result = stream.result
        end = "stop" if result.end in ("stop", "cancelled") else "length"
        ended = bool(result.tokens) and self._loaded.is_end(result.tokens[-1])
        yield _Part("", end, len(result.tokens) - int(ended))

    def _parts_by_token(
        self,
        tokens: list[int],
        limit: int | None,
        stop: list[str],
        logprobs: int | None,
        seed: int | None,
        bias: dict[int, float],
        sampling: Json,
        processor: LogitsProcessorList | None,
        criteria: StoppingCriteriaList | None,
    ) -> Iterator[_Part]:
        options = {"temp" if key == "temperature" else key: value for key, value in sampling.items()}
        made: list[int] = []
        text, shown, end = b"", 0, "length"
        room = self.n_ctx() - len(tokens)
        generated = self.generate(
            tokens, seed=seed, logit_bias=bias, logits_processor=processor, stopping_criteria=criteria, **options
        )
        likely: list[tuple[str, float, dict[str, float]]] = []
        for token in generated:
            if self._loaded.is_end(token):
                end = "stop"
                break
            made.append(token)
            if logprobs is not None:
                likely.append(self._log_probabilities(token, logprobs))
            text += self._loaded.token_bytes([token])
            whole = text.decode(errors="ignore")
            found = [place for place in (whole.find(mark) for mark in stop) if place >= 0]
            if found:
                end = "stop"
                text = whole[: min(found)].encode()
                break
            held = max((k for mark in stop for k in range(1, len(mark)) if whole.endswith(mark[:k])), default=0)
            piece = whole[shown : len(whole) - held]
            if piece:
                shown += len(piece)
                yield _Part(piece)
            if len(made) >= min(limit or room, room):
                break
        else:
            end = "stop"
        yield _Part(text.decode(errors="ignore")[shown:], end, len(made), likely if logprobs is not None else None)

    def _log_probabilities(self, token: int, count: int) -> tuple[str, float, dict[str, float]]:
        row = self._logits[-1].astype(np.float64)
        row -= row.max()
        row -= np.log(np.exp(row).sum())

        def text(token: int) -> str:
            return self.detokenize([token]).decode(errors="ignore")

        best = np.argsort(-row, kind="stable")[:count]
        top = {text(int(other)): float(row[other]) for other in best}
        top[text(token)] = float(row[token])
        return text(token), float(row[token]), top

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: None = None,
        function_call: None = None,
        tools: None = None,
        tool_choice: None = None,
        temperature: float = 0.2,
        stop: str | Sequence[str] | None = None,
        stream: bool = False,
        max_tokens: int | None = None,
        response_format: Mapping[str, Any] | None = None,
        logprobs: bool | None = None,
        top_logprobs: int | None = None,
        **options: Any,
    ) -> Json | Iterator[Json]:
        """The answer to a chat, in the form of OpenAI's chat completions."""
        if functions or function_call or tools or tool_choice:
            raise NotImplementedError("orlop.llama_cpp.Llama has no tools")
        formatted = _grammar_of_format(response_format)
        if formatted is not None:
            if options.get("grammar") is not None:
                raise ValueError("response_format and grammar exclude each other")
            options["grammar"] = formatted
        if logprobs:
            options["logprobs"] = top_logprobs or 0
        if self.chat_format == "chatml":
            text = "".join(f"<|im_start|>{said['role']}\n{said['content']}<|im_end|>\n" for said in messages)
            tokens = self._loaded.tokenize(text + "<|im_start|>assistant\n", prompt=True)
            ends = ["<|im_end|>"]
        else:
            tokens, ends = self._loaded.prompt_tokens([cast(orlop.Message, dict(said)) for said in messages])
        stops = [*([stop] if isinstance(stop, str) else stop or ()), *ends]
        completion = self.create_completion(
            tokens, temperature=temperature, stop=stops, stream=stream, max_tokens=max_tokens, **options
        )
        if isinstance(completion, dict):
            return _chat_completion(completion)
        return _chat_chunks(completion)

    def create_embedding(self, input: str | list[str], model: str | None = None) -> Json:
        """Embeddings of texts, in the form of OpenAI's."""
        rows, count = self.embed([input] if isinstance(input, str) else input, return_count=True)
        data = [{"object": "embedding", "embedding": row, "index": index} for index, row in enumerate(rows)]
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": model or self.model_path, "usage": usage}

    def embed(
        self, input: str | list[str], normalize: bool = False, truncate: bool = True, return_count: bool = False
    ) -> Any:
        """A row for each text, of length 1 with `normalize`; with `return_count`, the number of tokens, too."""
        if self._embedder is None:
            raise RuntimeError("Llama model must be created with embedding=True to call this method")
        texts = [input] if isinstance(input, str) else input
        numbers, count = self._embedder._embedder.embed(texts, normalize, truncate)
        rows: list[list[float]] = to_floats(numbers).tolist()
        made = rows[0] if isinstance(input, str) else rows
        return (made, count) if return_count else made


@dataclass(frozen=True)
class _Part:
    """More of a text; the last one says how it ended."""

    text: str
    end: Literal["stop", "length"] | str | None = None
    tokens: int = 0
    likely: list[tuple[str, float, dict[str, float]]] | None = None


@dataclass(frozen=True)
class _Making:
    """A completion while it is made."""

    id: str
    created: int
    model: str
    prompt_tokens: int

    def completion(self, parts: Iterator[_Part], head: str) -> Json:
        text, last = head, _Part("")
        for last in parts:
            text += last.text
        return self._shaped(text, last.end, _logprobs(last, len(head))) | {
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "completion_tokens": last.tokens,
                "total_tokens": self.prompt_tokens + last.tokens,
            }
        }

    def chunks(self, parts: Iterator[_Part], head: str) -> Iterator[Json]:
        if head:
            yield self._shaped(head, None, None)
        for part in parts:
            yield self._shaped(part.text, part.end, _logprobs(part, len(head)))

    def _shaped(self, text: str, end: str | None, logprobs: Json | None) -> Json:
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": end}
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        }


def _grammar_of_format(response_format: Mapping[str, Any] | None) -> LlamaGrammar | None:
    """What an answer has to match, in OpenAI's words or in those of llama-cpp-python."""
    if response_format is None:
        return None
    match response_format:
        case {"type": "text"}:
            return None
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return LlamaGrammar(schema=schema)
        case {"type": "json_object"}:
            return LlamaGrammar(schema=response_format.get("schema"))
    raise ValueError(f"the response format {response_format!r} is not known: text, json_object or json_schema")


def _logprobs(part: _Part, begin: int) -> Json | None:
    if part.likely is None:
        return None
    offsets = []
    for text, _, _ in part.likely:
        offsets.append(begin)
        begin += len(text)
    return {
        "tokens": [text for text, _, _ in part.likely],
        "text_offset": offsets,
        "token_logprobs": [value for _, value, _ in part.likely],
        "top_logprobs": [top for _, _, top in part.likely],
    }


def _chat_completion(completion: Json) -> Json:
    choice = completion["choices"][0]
    message = {"role": "assistant", "content": choice["text"]}
    logprobs = choice["logprobs"]
    if logprobs is not None:
        content = [
            {
                "token": token,
                "bytes": None,
                "logprob": value,
                "top_logprobs": [{"token": other, "logprob": log, "bytes": None} for other, log in top.items()],
            }
            for token, value, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"])
        ]
        logprobs = {"content": content, "refusal": None}
    choices = [{"index": 0, "message": message, "logprobs": logprobs, "finish_reason": choice["finish_reason"]}]
    return completion | {"id": "chat" + completion["id"], "object": "chat.completion", "choices": choices}


def _chat_chunks(chunks: Iterator[Json]) -> Iterator[Json]:
    first = True
    for chunk in chunks:
        def shaped(delta: Json, end: str | None, chunk: Json = chunk) -> Json:
            choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}]
            return chunk | {"id": "chat" + chunk["id"], "object": "chat.completion.chunk", "choices": choices}

        if first:
            yield shaped({"role": "assistant"}, None)
            first = False
        choice = chunk["choices"][0]
        if choice["text"]:
            yield shaped({"content": choice["text"]}, None)
        if choice["finish_reason"] is not None:
            yield shaped({}, choice["finish_reason"])
