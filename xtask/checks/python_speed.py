"""Speeds of a model through the Python package, as JSON; see `cargo xtask bench python`."""

import json
import sys
import time

import orlop

path, threads, prompt, new = sys.argv[1], *map(int, sys.argv[2:])
with orlop.Model(path or None, context=prompt + new, threads=threads) as model:

    def prompt_seconds() -> float:
        begin = time.perf_counter()
        made = model.complete([2 + i % 100 for i in range(prompt)], max_tokens=1, temperature=0)
        assert made.kept == 0, made
        return time.perf_counter() - begin

    def seconds_per_token() -> float:
        begin = time.perf_counter()
        made = model.complete([1], max_tokens=new, temperature=0)
        return (time.perf_counter() - begin) / len(made.tokens)

    # Weights are repacked, and graphs have run once, as in `orlop bench`. Each text begins anew.
    prompt_seconds(), seconds_per_token()
    print(json.dumps({"prompt": prompt / prompt_seconds(), "generate": 1 / seconds_per_token()}))
