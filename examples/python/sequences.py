"""Several texts at once: prompts that begin alike share their beginning, and every step reads the weights once.

python examples/python/sequences.py [MODEL.gguf]
"""

from __future__ import annotations

import sys

import orlop


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else None
    ends = ["France is", "Italy is", "Spain is"]
    with orlop.Model(path, context=256, sequences=len(ends) + 1) as model:
        shared = model.sequence()
        shared.feed(model.tokenize("The capital of", prompt=True))
        sequences = [shared.fork() for _ in ends]
        samplers = [orlop.Sampler(temperature=0) for _ in ends]
        tokens = [model.tokenize(" " + end) for end in ends]
        texts = list(ends)
        for _ in range(4):
            rows = model.feed(list(zip(sequences, tokens)))
            tokens = [[sampler.sample(row)] for sampler, row in zip(samplers, rows)]
            texts = [text + model.detokenize(token) for text, token in zip(texts, tokens)]
        for text in texts:
            print("The capital of", text.strip())


if __name__ == "__main__":
    main()
