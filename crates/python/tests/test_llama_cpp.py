"""Programs written for llama_cpp.Llama: the examples of its README, and what its own tests of the high-level class check."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import orlop
from orlop import llama_cpp
from orlop.llama_cpp import (
    Llama,
    LlamaGrammar,
    LlamaPromptLookupDecoding,
    LlamaRAMCache,
    LogitsProcessorList,
    StoppingCriteriaList,
)


ROOT = LlamaGrammar('root ::= "a"')


@pytest.fixture(scope="module")
def llm(model: orlop.Model) -> Iterator[Llama]:
    with Llama(model_path=model.path, n_ctx=256, logits_all=True, n_batch=32, verbose=False) as llm:
        yield llm


def test_the_first_example_of_the_readme(llm: Llama) -> None:
    output: Any = llm(
        "Q: Name the planets in the solar system? A: ", max_tokens=32, stop=["Q:", "\n"], echo=True, temperature=0
    )
    choice = output["choices"][0]
    assert output["object"] == "text_completion" and output["id"].startswith("cmpl-")
    assert choice["text"].startswith("Q: Name the planets in the solar system? A: ")
    assert choice["index"] == 0 and choice["logprobs"] is None and choice["finish_reason"] in ("stop", "length")
    usage = output["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_a_chat_completion_and_its_stream(llm: Llama) -> None:
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    output: Any = llm.create_chat_completion(messages=messages, max_tokens=16, temperature=0)
    message = output["choices"][0]["message"]
    assert message["role"] == "assistant" and "Paris" in message["content"]
    assert output["object"] == "chat.completion" and output["id"].startswith("chatcmpl-")
    stream: Any = llm.create_chat_completion(messages=messages, max_tokens=16, temperature=0, stream=True)
    chunks = list(stream)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == message["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == output["choices"][0]["finish_reason"]
    chatml = Llama(model_path=llm.model_path, chat_format="chatml", n_ctx=256)
    other: Any = chatml.create_chat_completion(messages=messages, max_tokens=16, temperature=0)
    assert other["choices"][0]["message"] == message


def test_a_completion_streams(llm: Llama) -> None:
    stream: Any = llm("The capital of France is", max_tokens=8, temperature=0, stream=True)
    chunks = list(stream)
    whole: Any = llm("The capital of France is", max_tokens=8, temperature=0)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_an_echo_is_in_the_stream(llm: Llama) -> None:
    prompt = "The capital of France is"
    whole: Any = llm(prompt, max_tokens=4, temperature=0, echo=True)
    stream: Any = llm(prompt, max_tokens=4, temperature=0, echo=True, stream=True)
    chunks = list(stream)
    assert chunks[0]["choices"][0]["text"] == prompt
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]


def test_samplers_that_are_off_are_accepted(llm: Llama) -> None:
    off = {"typical_p": 1.0, "tfs_z": 1.0, "mirostat_mode": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1}
    plain: Any = llm("The capital of France is", max_tokens=4, temperature=0)
    other: Any = llm("The capital of France is", max_tokens=4, temperature=0, **off)
    assert plain["choices"] == other["choices"]
    assert llm.generate([1, 2], **off) and llm.create_chat_completion([{"role": "user", "content": "a"}], max_tokens=1, **off)


def test_prompt_lookup_changes_no_text(llm: Llama) -> None:
    prompt = "The quick brown fox jumps over the lazy dog. The quick brown fox"
    plain: Any = llm.create_completion(prompt, max_tokens=6, top_k=50, top_p=0.9, temperature=0.0, seed=1337)
    drafting = Llama(model_path=llm.model_path, n_ctx=128, draft_model=LlamaPromptLookupDecoding(num_pred_tokens=4))
    drafted: Any = drafting.create_completion(prompt, max_tokens=6, temperature=0.0)
    assert drafted["choices"][0]["text"] == plain["choices"][0]["text"]


@pytest.mark.parametrize(
    ("tokens", "size", "count", "found"),
    [
        ([1, 2, 3, 1, 2, 3], 3, 2, [1, 2]),
        ([5, 1, 2, 9, 8, 1, 2], 2, 3, [9, 8, 1]),
        ([1, 2, 3, 2], 3, 5, [3, 2]),
        ([1, 2, 3, 4], 2, 2, []),
        ([1], 2, 2, []),
    ],
)
def test_a_draft_is_what_followed_the_same_tokens(tokens: list[int], size: int, count: int, found: list[int]) -> None:
    drafter = LlamaPromptLookupDecoding(max_ngram_size=size, num_pred_tokens=count)
    assert drafter(np.array(tokens, dtype=np.intc)).tolist() == found


def test_logits_processors_change_the_text(llm: Llama) -> None:
    tokens = llm.tokenize(b"rot", add_bos=True, special=True)

    def favor(input_ids: Any, logits: Any) -> Any:
        logits[tokens] = logits.max() + 100
        return logits

    output: Any = llm.create_completion(
        "The capital of france is par", max_tokens=1, temperature=0.8, seed=1337,
        logits_processor=LogitsProcessorList([favor]),
    )  # fmt: skip
    assert output["choices"][0]["text"].lower().startswith("rot")


def test_stopping_criteria_end_the_text(llm: Llama) -> None:
    stops = StoppingCriteriaList([lambda input_ids, logits: len(input_ids) > 6])
    output: Any = llm("The capital of France is", max_tokens=20, temperature=0, stopping_criteria=stops)
    assert output["usage"]["completion_tokens"] == 2 and output["choices"][0]["finish_reason"] == "stop"


def test_log_probabilities_are_those_of_the_tokens(llm: Llama) -> None:
    output: Any = llm("The capital of France is", max_tokens=4, temperature=0, logprobs=3)
    found = output["choices"][0]["logprobs"]
    assert len(found["tokens"]) == len(found["token_logprobs"]) == 4
    assert "".join(found["tokens"]) == output["choices"][0]["text"]
    for token, value, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"]):
        assert value <= 0 and math.isclose(max(top.values()), value) and top[token] == value


def test_tokens_are_generated_as_in_a_text(llm: Llama) -> None:
    tokens = llm.tokenize(b"The capital of France is")
    generated = llm.generate(tokens, temp=0.0)
    made = [next(generated) for _ in range(3)]
    assert llm.detokenize(made) == b" Paris.\n"
    assert llm.n_tokens == len(tokens) + 2 and llm.input_ids[: len(tokens)].tolist() == tokens
    assert llm.sample(temp=0.0, idx=len(tokens) - 1) == made[0]
    # A shorter prompt is not evaluated again but for its last token.
    again = llm.generate(tokens, temp=0.0)
    assert [next(again) for _ in range(3)] == made


def test_a_saved_state_brings_back_tokens_and_random_numbers(llm: Llama) -> None:
    llm.set_seed(1337)
    state = llm.save_state()

    def text() -> str:
        output: Any = llm.create_completion("Pick a number:", max_tokens=8, temperature=1.5)
        return str(output["choices"][0]["text"])

    first, second = text(), text()
    llm.load_state(state)
    assert first != second and text() == first


def test_models_share_a_cache(llm: Llama) -> None:
    cache = LlamaRAMCache()
    prompt = "The capital of France is"

    def text(caching: bool) -> tuple[str, int]:
        with Llama(model_path=llm.model_path, n_ctx=64) as model:
            loads = 0
            load = model.load_state

            def counted(state: llama_cpp.LlamaState) -> None:
                nonlocal loads
                loads += 1
                load(state)

            model.load_state = counted  # type: ignore[method-assign]
            model.set_cache(cache if caching else None)
            output: Any = model(prompt, max_tokens=4, temperature=0)
            model("Q", max_tokens=1)
            return str(output["choices"][0]["text"]), loads

    expected, loads = text(False)
    assert loads == 0 and cache.cache_size == 0
    assert text(True) == (expected, 0)
    assert text(True) == (expected, 2) and cache.cache_size > 0
    kept = cache[llm.tokenize(prompt.encode(), special=True)]
    cache.capacity_bytes = len(kept.state)
    cache[kept.text] = kept
    assert cache.cache_size == len(kept.state) and [1 << 20] not in cache
    with pytest.raises(KeyError):
        cache[[1 << 20]]


def test_grammars_and_response_formats_hold(llm: Llama) -> None:
    grammar = LlamaGrammar.from_string('root ::= "true" | "false"')
    output: Any = llm("The capital of france is paris, 'true' or 'false'?:\n", max_tokens=4, seed=1337, grammar=grammar)
    assert output["choices"][0]["text"] in ("true", "false")
    schema = {"type": "object", "properties": {"team_name": {"type": "string", "maxLength": 12}}, "required": ["team_name"]}
    output = llm.create_chat_completion(
        messages=[{"role": "user", "content": "Who won the world series in 2020"}],
        response_format={"type": "json_object", "schema": schema},
        temperature=0.7,
        max_tokens=64,
    )
    assert list(json.loads(output["choices"][0]["message"]["content"])) == ["team_name"]
    output = llm.create_chat_completion(
        messages=[{"role": "user", "content": "Who won the world series in 2020"}],
        response_format={"type": "json_schema", "json_schema": {"name": "team", "schema": schema}},
        max_tokens=64,
    )
    assert list(json.loads(output["choices"][0]["message"]["content"])) == ["team_name"]


def test_objects_of_a_schema_are_closed_as_in_llama_cpp() -> None:
    inner = {"type": "object", "properties": {"properties": {"type": "string"}}}
    opened = {"type": "object", "properties": {}, "additionalProperties": True}
    schema = {"anyOf": [inner, opened], "items": {"allOf": [inner]}, "properties": {"a": inner}}
    closed = LlamaGrammar(schema=schema).options()["json_schema"]
    assert closed["properties"]["a"] == inner | {"additionalProperties": False} == closed["anyOf"][0]
    assert closed["anyOf"][1] == opened and closed["items"] == {"allOf": [inner]}
    assert closed["additionalProperties"] is False and "additionalProperties" not in inner


def test_embeddings_of_several_texts_are_those_of_each(llm: Llama) -> None:
    with Llama(model_path=llm.model_path, embedding=True, n_ctx=64) as embedder:
        texts = ["Hello, world!", "Goodbye, world!"]
        together: Any = embedder.create_embedding(texts)
        assert [item["index"] for item in together["data"]] == [0, 1]
        for text, item in zip(texts, together["data"]):
            np.testing.assert_allclose(embedder.embed(text), item["embedding"], rtol=1e-3, atol=1e-4)
        given, count = embedder.embed(texts, return_count=True)
        assert count == together["usage"]["total_tokens"] == sum(len(embedder.tokenize(text.encode())) for text in texts)
        lengths = np.linalg.norm(given, axis=1)
        assert abs(lengths - 1).min() > 0.01
        rows = embedder.embed(texts, normalize=True)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
        assert len(embedder.embed("word " * 100)) == len(rows[0])
        with pytest.raises(orlop.OrlopError):
            embedder.embed("word " * 100, truncate=False)
        with pytest.raises(ValueError, match="embedding"):
            embedder("a")


def test_tokenizing_without_the_model(llm: Llama) -> None:
    vocabulary = Llama(model_path=llm.model_path, vocab_only=True, verbose=False)
    tokens = vocabulary.tokenize(b"Hello World")
    assert vocabulary.detokenize(tokens) == b"Hello World" and tokens == llm.tokenize(b"Hello World")
    with pytest.raises(ValueError, match="vocab_only"):
        vocabulary("a")


def test_facts_have_their_names(llm: Llama) -> None:
    assert (llm.n_ctx(), llm.n_vocab(), llm.n_embd()) == (256, 49152, 576)
    assert llm.metadata["general.architecture"] == "llama" and llm.tokenizer().encode("a") == llm.tokenize(b"a")
    assert llm.scores.dtype == np.float32 and llama_cpp.__version__ == orlop.__version__
    assert llm.token_nl() == llm.tokenize(b"\n")[-1]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda llm: llm("a", suffix="b"), NotImplementedError),
        (lambda llm: llm("a", logprobs=1, grammar=ROOT), NotImplementedError),
        (lambda llm: llm.embed("a"), RuntimeError),
        (lambda llm: llm("a", typical_p=0.5), NotImplementedError),
        (lambda llm: llm("a", mirostat_mode=2), NotImplementedError),
        (lambda llm: llm("a", temprature=0.5), TypeError),
        (lambda llm: llm.generate([1], mirostat_mode=1), NotImplementedError),
        (lambda llm: llm.sample(tfs_z=0.5), NotImplementedError),
        (lambda llm: llm.create_chat_completion([], response_format={"type": "json_schema"}), ValueError),
        (lambda llm: llm.create_chat_completion([], response_format={"type": "yaml"}), ValueError),
        (lambda llm: llm.create_chat_completion([], response_format={"type": "json_object"}, grammar=ROOT), ValueError),
        (lambda llm: llm.create_chat_completion([], tools=[{}]), NotImplementedError),
        (lambda llm: Llama(llm.model_path, chat_format="functionary-v2"), NotImplementedError),
        (lambda llm: Llama(llm.model_path, lora_path="x"), TypeError),
        (lambda llm: Llama.from_pretrained("a/b", "*"), ImportError),
    ],
)
def test_what_cannot_be_done_is_refused(llm: Llama, call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(llm)
