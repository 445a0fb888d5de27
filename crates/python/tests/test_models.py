"""Models: texts, tokens, logits, sequences."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import orlop

PARIS = " Paris.\n\nThe answer is:"


def test_a_text_is_that_of_the_command(model: orlop.Model) -> None:
    assert model.generate("The capital of France is", max_tokens=8, temperature=0) == PARIS


def test_a_stream_gives_the_pieces_of_the_text(model: orlop.Model) -> None:
    stream = model.stream("The capital of France is", max_tokens=8, temperature=0)
    pieces = list(stream)
    assert "".join(pieces) == PARIS and all(pieces)
    result = stream.result
    assert (result.text, result.end, result.prompt_tokens, len(result.tokens)) == (PARIS, "length", 5, 8)


def test_a_stream_can_be_read_by_asynchronous_code(model: orlop.Model) -> None:
    async def read() -> tuple[str, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        text = ""
        async for piece in model.stream("The capital of France is", max_tokens=8, temperature=0):
            text += piece
        ticking.cancel()
        return text, ticks

    text, ticks = asyncio.run(read())
    assert text == PARIS and ticks > 8


def test_a_stop_text_ends_the_text(model: orlop.Model) -> None:
    made = model.complete("The capital of France is", max_tokens=20, temperature=0, stop=[".\n", "never"])
    assert (made.text, made.end, made.stopped_by) == (" Paris", "stop", ".\n")


def test_equal_seeds_give_equal_texts(tiny: orlop.Model) -> None:
    def text(seed: int | None) -> str:
        return tiny.generate("Once", max_tokens=12, temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=seed)

    assert text(7) == text(7) != text(8)
    assert text(None) != text(None)


def test_a_bias_forbids_tokens(tiny: orlop.Model) -> None:
    first = tiny.complete([1, 2], max_tokens=1, temperature=0).tokens
    other = tiny.complete([1, 2], max_tokens=1, temperature=0, logit_bias={first[0]: -float("inf")}).tokens
    assert first != other


def test_a_text_matches_its_grammar(model: orlop.Model) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    schema |= {"additionalProperties": False}
    text = model.chat("Where is the Eiffel Tower?", json_schema=schema, max_tokens=32, temperature=0)
    assert json.loads(text)["city"] in ("Paris", "Rome")
    assert re.fullmatch("[0-9]{3}", model.generate("The number is", regex="[0-9]{3}", max_tokens=8))
    assert model.generate("Yes or no?", grammar='root ::= "no"', max_tokens=8) == "no"
    with pytest.raises(orlop.OrlopError, match="regular expression"):
        model.generate("a", regex="(")
    with pytest.raises(TypeError, match="exclude"):
        model.generate("a", regex="a", grammar="b")


def test_embeddings_have_length_1_and_near_texts_are_near(model: orlop.Model) -> None:
    with orlop.Embedder(model.path, context=64) as embedder:
        rows = embedder.embed(["The cat sat.", "The cat sat.", "Stock prices fell sharply."])
        assert rows.shape == (3, embedder.dimensions) and embedder.longest_text == 64
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-4)
        assert rows[0] @ rows[1] > rows[0] @ rows[2]
        np.testing.assert_allclose(embedder.embed("The cat sat."), rows[0], rtol=1e-2, atol=1e-3)
        with pytest.raises(orlop.OrlopError):
            embedder.embed(["word " * 100])


def test_a_chat_is_answered_and_its_beginning_is_processed_once(model: orlop.Model) -> None:
    said: list[orlop.Message] = [{"role": "user", "content": "What is the capital of France?"}]
    first = model.complete(said, temperature=0, max_tokens=20)
    assert first.text == "The capital of France is Paris." and first.end == "stop"
    assert model.chat("What is the capital of France?", temperature=0, max_tokens=20) == first.text
    said += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And of Spain?"}]
    second = model.complete(said, temperature=0, max_tokens=4)
    assert second.kept >= first.prompt_tokens


def test_drafts_change_no_text(model: orlop.Model) -> None:
    text = "one two three one two three one two three one two"
    plain = model.generate(text, max_tokens=24, temperature=0)
    with orlop.Model(context=512, lookup=8) as drafting:
        assert drafting.generate(text, max_tokens=24, temperature=0) == plain
        drafted, accepted = drafting.drafts
        assert drafted >= accepted > 0


def test_a_draft_model_changes_no_text(tiny: orlop.Model, tiny_path: str) -> None:
    plain = tiny.generate([1, 2, 3], max_tokens=96, temperature=0)
    with orlop.Model(tiny_path, threads=1, draft_model=tiny_path, draft_max=4) as drafting:
        # A draft that does not pay is tried after some tokens.
        assert drafting.generate([1, 2, 3], max_tokens=96, temperature=0) == plain
        drafted, accepted = drafting.drafts
        # Its own drafts are what the model says.
        assert drafted == accepted > 0
        total = sum(share.total for share in drafting.memory)
    assert orlop.plan(tiny_path, threads=1, draft_model=tiny_path, draft_max=4).total == total
    assert total > sum(share.total for share in tiny.memory)
    with pytest.raises(TypeError, match="exclude"):
        orlop.Model(tiny_path, draft_model=tiny_path, lookup=2)
    with pytest.raises(orlop.OrlopError, match="the draft model /nowhere.gguf"):
        orlop.Model(tiny_path, draft_model="/nowhere.gguf")


def test_a_model_makes_the_embeddings_of_its_file(tiny_path: str) -> None:
    texts = ["Hello", "Goodbye, world"]
    with orlop.Model(tiny_path, threads=1) as model, orlop.Embedder(tiny_path, threads=1) as embedder:
        rows = model.embed(texts)
        np.testing.assert_array_equal(rows, embedder.embed(texts))
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
        given = model.embed(texts, normalize=False)
        lengths = np.linalg.norm(given, axis=1)
        assert abs(lengths - 1).min() > 0.01
        np.testing.assert_allclose(given / lengths[:, None], rows, rtol=1e-5, atol=1e-6)
        assert model.embed("Hello").shape == (model.embedding,)
    with pytest.raises(orlop.ClosedError):
        model.embed("Hello")


def test_tokens_are_the_text_again(model: orlop.Model) -> None:
    text = "Zwölf Boxkämpfer jagen Viktor."
    tokens = model.tokenize(text)
    assert model.detokenize(tokens) == text
    assert b"".join(model.token_bytes([token]) for token in tokens) == text.encode()
    tokenizer = orlop.Tokenizer(model.path)
    assert tokenizer.tokenize(text) == tokens and tokenizer.detokenize(tokens) == text
    assert tokenizer.eos == model.eos


def test_logits_are_numpy_arrays_over_the_memory_that_the_library_wrote(tiny_path: str) -> None:
    tokens = [1 + i % 290 for i in range(512)]
    with orlop.Model(tiny_path, threads=1, context=512, batch=512, all_logits=True) as model:
        numbers = model._model.logits(tokens, True)
        from orlop._arrays import to_floats

        logits = to_floats(numbers)
        assert logits.shape == (512, model.vocabulary) and logits.dtype == np.float32
        assert logits.__array_interface__["data"][0] == numbers.address
        del numbers
        last = model.logits(tokens)
        np.testing.assert_array_equal(logits[-1], last)
        logits[0, 0] = 5.0  # it is the caller's
        assert np.asarray(memoryview(logits))[0, 0] == 5.0


def test_the_likeliest_token_is_that_of_the_logits(tiny: orlop.Model) -> None:
    token = tiny.complete([1, 2, 3], max_tokens=1, temperature=0).tokens[0]
    logits = tiny.logits([1, 2, 3])
    assert int(logits.argmax()) == token == orlop.Sampler(temperature=0).sample(logits)


def test_sequences_run_together_and_forks_share_their_beginning(tiny: orlop.Model) -> None:
    first = tiny.sequence()
    logits = first.feed([1, 2, 3])
    np.testing.assert_array_equal(logits, tiny.logits([1, 2, 3]))
    second = first.fork()
    assert len(second) == 3
    both = tiny.feed([(first, [4]), (second, [5, 6])])
    np.testing.assert_array_equal(both[0], tiny.logits([1, 2, 3, 4]))
    np.testing.assert_array_equal(both[1], tiny.logits([1, 2, 3, 5, 6]))
    assert second.truncate(2) == 2
    np.testing.assert_array_equal(second.feed([9], all=True)[0], tiny.logits([1, 2, 9]))
    third = tiny.sequence()
    with pytest.raises(orlop.OrlopError, match="4 sequences"):
        tiny.sequence()
    third.close()
    del second
    assert len(tiny.sequence()) == 0 and len(tiny.sequence()) == 0
    with pytest.raises(orlop.ClosedError):
        third.feed([1])


def test_a_saved_state_continues_where_it_was(tiny: orlop.Model, tiny_path: str) -> None:
    made = tiny.complete([1, 2, 3], max_tokens=5, temperature=0)
    state = tiny.save_state()
    with orlop.Model(tiny_path, threads=1) as other:
        tokens = other.load_state(state)
        assert tokens == [1, 2, 3, *made.tokens[:-1]]
        longer = [*tokens, made.tokens[-1], 7]
        assert other.complete(longer, max_tokens=3, temperature=0).kept == len(tokens)
        with pytest.raises(orlop.OrlopError, match="saved sequence"):
            other.load_state(state[:-3])


def test_sequences_leave_the_text_in_the_cache(tiny: orlop.Model) -> None:
    made = tiny.complete([1, 2, 3], max_tokens=5, temperature=0)
    tokens = [1, 2, 3, *made.tokens[:-1]]
    first = tiny.sequence()
    first.feed([9, 8])
    second = first.fork()
    assert (len(first), second.truncate(1)) == (2, 1)
    del second
    first.close()
    assert tiny.load_state(tiny.save_state()) == tokens
    longer = [*tokens, made.tokens[-1], 7]
    assert tiny.complete(longer, max_tokens=1, temperature=0).kept == len(tokens)


def test_a_busy_model_loses_no_sequence() -> None:
    with orlop.Model(context=512, sequences=2) as model:
        first, second = model.sequence(), model.sequence()
        stream = model.stream("Once", temperature=0, logit_bias={model.eos or 0: -1e9})
        with pytest.raises(orlop.BusyError):
            first.close()
        del second
        with pytest.raises(orlop.BusyError):
            model.sequence()
        stream.close()
        assert len(first) == 0
        first.close()
        both = [model.sequence(), model.sequence()]
        assert [len(sequence) for sequence in both] == [0, 0]


def test_a_sequence_of_a_closed_model_can_be_closed(tiny_path: str) -> None:
    model = orlop.Model(tiny_path, threads=1, sequences=1)
    sequence = model.sequence()
    model.close()
    sequence.close()


def test_too_many_tokens_are_refused_before_there_is_memory_for_their_logits(tiny_path: str) -> None:
    program = """
import resource, sys, orlop
model = orlop.Model(sys.argv[1], threads=1)
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    model.logits([1] * 2_000_000, all=True)
except orlop.OrlopError as error:
    print(error)
"""
    done = run(program, tiny_path)
    assert done.returncode == 0 and "context of 128" in done.stdout, done.stdout + done.stderr


def test_a_plan_says_what_a_model_takes_to_the_byte(tiny_path: str) -> None:
    plan = orlop.plan(tiny_path, context=64, threads=1, sequences=1)
    with orlop.Model(tiny_path, context=64, threads=1, sequences=1) as model:
        assert [share.total for share in model.memory] == [share.total for share in plan.memory]
    assert plan.fits and plan.largest_context == plan.trained_context == 128
    small = orlop.plan(tiny_path, context=64, threads=1, budgets={"cpu": 1000})
    assert not small.fits
    with pytest.raises(orlop.OrlopError, match=r"needs \d+ bytes on cpu, which has 1000"):
        orlop.Model(tiny_path, context=64, threads=1, budgets={"cpu": 1000})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: orlop.Model("/nowhere.gguf"), "/nowhere.gguf"),
        (lambda model: orlop.Model(model.path, devices=["nothing"]), "no device `nothing`"),
        (lambda model: orlop.Model(model.path, precision="int4"), "int4"),
        (lambda model: orlop.Model(model.path, cache_type_k="q9"), "q9"),
        (lambda model: orlop.Model(model.path, contexts=3), "contexts"),
        (lambda model: model.generate([]), "empty"),
        (lambda model: model.generate([100_000]), "token 100000"),
        (lambda model: model.generate([1] * 500), "context of 128"),
        (lambda model: model.generate([-1]), "prompt"),
        (lambda model: model.generate([{"role": "user"}, 3]), "prompt"),
        (lambda model: model.generate("a", temprature=1), "temprature"),
        (lambda model: model.sequence().feed([]), "empty"),
        (lambda model: orlop.Sampler().sample(np.zeros((2, 2), dtype=np.float32)), "dimensions"),
        (lambda model: model.chat([{"role": "user", "content": [{"type": "image_url"}]}]), "text"),
    ],
)
def test_bad_input_is_an_exception(tiny: orlop.Model, call: object, message: str) -> None:
    with pytest.raises((orlop.OrlopError, ValueError, TypeError, OverflowError), match=message):
        call(tiny)  # type: ignore[operator]


def test_a_closed_model_refuses_to_work(tiny_path: str) -> None:
    model = orlop.Model(tiny_path, threads=1, sequences=1)
    sequence = model.sequence()
    model.close()
    model.close()
    for call in (lambda: model.generate("a"), lambda: sequence.feed([1]), model.save_state):
        with pytest.raises(orlop.ClosedError, match="closed"):
            call()
    assert model.tokenize("a")


def test_an_open_stream_is_busy_and_a_closed_one_is_not(tiny: orlop.Model) -> None:
    stream = tiny.stream("Once", max_tokens=100, temperature=0)
    next(stream)
    if not stream._stream.is_done:
        with pytest.raises(orlop.BusyError, match="stream"):
            tiny.logits([1])
    stream.close()
    assert tiny.logits([1]).shape == (tiny.vocabulary,)
    del stream
    for _ in tiny.stream("Once", max_tokens=100, temperature=0):
        break
    assert tiny.complete("Once", max_tokens=2).end == "length"


def test_an_exception_in_a_callback_ends_the_text(tiny: orlop.Model) -> None:
    def fail(piece: str) -> None:
        raise RuntimeError(piece)

    with pytest.raises(RuntimeError):
        tiny.generate("Once", max_tokens=100, on_text=fail)
    pieces: list[str] = []
    made = tiny.complete("Once", max_tokens=100, on_text=lambda piece: pieces.append(piece) or False)
    assert len(pieces) == 1 and made.text.startswith(pieces[0]) and len(made.tokens) <= 100
    assert tiny.complete("Once", max_tokens=2).end == "length"


def test_threads_wait_for_each_other(tiny: orlop.Model) -> None:
    expected = tiny.generate("Once", max_tokens=10, temperature=0)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(lambda: tiny.logits([1, 2, 3])) for _ in range(16)]
        rows = [future.result() for future in futures]
    assert all((row == rows[0]).all() for row in rows)
    assert tiny.generate("Once", max_tokens=10, temperature=0) == expected


def test_the_interpreter_runs_while_a_model_computes(model: orlop.Model) -> None:
    done = threading.Event()
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.0005)

    ticking = threading.Thread(target=tick)
    ticking.start()
    model.generate("Once upon a time", max_tokens=16, temperature=0)
    done.set()
    ticking.join()
    assert ticks > 3


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=100)


def test_a_forked_process_gets_an_exception(tiny_path: str) -> None:
    program = """
import os, sys, orlop
model = orlop.Model(sys.argv[1], threads=2, sequences=1)
sequence = model.sequence()
session = orlop.Session()
child = os.fork()
if child == 0:
    for call in (lambda: model.generate("a"), lambda: sequence.feed([1]), lambda: list(model.stream("a"))):
        try:
            call()
        except orlop.ForkedError as error:
            assert "forked" in str(error)
        else:
            os._exit(3)
    del model, sequence, session
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert model.generate("Once", max_tokens=3)
"""
    done = run(program, tiny_path)
    assert done.returncode == 0, done.stderr


def test_ctrl_c_stops_a_text_and_a_prompt(tiny_path: str, model: orlop.Model) -> None:
    program = """
import os, signal, sys, threading, orlop
model = orlop.Model(sys.argv[1], context=2000)
prompt = list(range(1000, 2900))
for work in (
    lambda: model.generate(prompt[:20], temperature=0, logit_bias={model.eos: -1e9}),
    lambda: model.logits(prompt),
    lambda: [None for _ in model.stream(prompt[:20], temperature=0)],
):
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        work()
    except KeyboardInterrupt:
        print("stopped")
    timer.join()
print(model.generate("The capital of France is", max_tokens=2, temperature=0))
"""
    done = run(program, model.path)
    assert done.stdout.split() == ["stopped"] * 3 + ["Paris."], done.stdout + done.stderr


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_loading_again_and_again_takes_no_memory(tiny_path: str) -> None:
    def load(count: int) -> int:
        for _ in range(count):
            with orlop.Model(tiny_path, threads=1, context=64) as model:
                model.generate([1, 2], max_tokens=1)
        return resident()

    after_100 = load(100)
    assert load(900) - after_100 < 1 << 20


def test_sigint_has_its_handler_again() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_facts_are_those_of_the_file(model: orlop.Model) -> None:
    assert (model.architecture, model.layers, model.embedding, model.vocabulary) == ("llama", 30, 576, 49152)
    assert model.has_chat_template and json.dumps(model.chat_template) and "context 1024" in repr(model)
