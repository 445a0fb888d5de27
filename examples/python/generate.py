"""Continues a text, chats, and shows what the model takes.

python examples/python/generate.py [MODEL.gguf]
"""

from __future__ import annotations

import sys

import orlop


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else None
    for share in orlop.plan(path, context=512).memory:
        print(f"{share.device}: {share.total} bytes")
    with orlop.Model(path, context=512) as model:
        for piece in model.stream("Once upon a time", max_tokens=16, temperature=0):
            print(piece, end="", flush=True)
        print()
        print(model.chat("Name a colour.", max_tokens=16, temperature=0))


if __name__ == "__main__":
    main()
