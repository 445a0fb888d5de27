"""Speeds of a model through the Python package, as JSON; see `cargo xtask bench python`."""

import json
import sys
import time

import orlop

path, threads, prompt_text, new = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
with orlop.Model(path or None, context=2048, threads=threads) as model:
    prompt = model.tokenize(prompt_text, prompt=True)
    # Weights are repacked, and graphs have run once.
    model.generate(prompt, max_tokens=2, temperature=0)
    model.logits(prompt[:1])
    begin = time.perf_counter()
    first = model.complete(prompt, max_tokens=1, temperature=0)
    seen = time.perf_counter()
    made = model.complete(prompt, max_tokens=new, temperature=0)
    end = time.perf_counter()
assert first.kept == 0 and made.kept == len(prompt) - 1, (first.kept, made.kept)
print(json.dumps({"prompt": len(prompt) / (seen - begin), "generate": len(made.tokens) / (end - seen)}))
