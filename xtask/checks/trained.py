"""Trained models beside llama.cpp: perplexity as shipped, and greedy tokens in F32.

Called by `cargo xtask check trained` with the `orlop` command, a folder for files, the folder of llama.cpp's programs, and models.
Perplexity must be within 1 % of `llama-perplexity`'s on the same text. With weights and caches in F32 on both sides, 32 greedy tokens of
ten prompts must be equal, except behind a token whose two best logits differ by less than 1e-3.
"""

import json
import pathlib
import re
import subprocess
import sys

PROMPTS = [
    "The capital of France is",
    "Once upon a time there was",
    "def fibonacci(n):",
    "Water boils at a temperature of",
    "The three primary colours are",
    "In 1492, Christopher Columbus",
    "import numpy as np\n",
    "The opposite of hot is",
    "A haiku about the sea:",
    "To be, or not to be,",
]
TOKENS = 32
CLOSE = 1e-3


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr[-800:]}"
    return done.stdout + done.stderr


def perplexities(orlop, peers, model, text):
    ours = json.loads(run(orlop, "perplexity", "-m", model, "-f", text, "--json").splitlines()[0])["perplexity"]
    answer = run(peers / "llama-perplexity", "-m", model, "-f", text, "-c", 512, "-b", 512)
    return ours, float(re.search(r"Final estimate: PPL = ([0-9.]+)", answer)[1])


def top(orlop, model, ids):
    """The two best logits behind some tokens."""
    exact = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"]
    tokens = ",".join(map(str, ids))
    command = [orlop, "logits", "-m", model, "--tokens", tokens, "--last", "--top", 2, "--json", *exact]
    return json.loads(run(*command))["logits"][0]


def ours(orlop, model, prompt):
    exact = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32", "--temp", 0]
    command = [orlop, "run", "-m", model, "-n", TOKENS, "--json", *exact, "--", prompt]
    answer = json.loads(run(*command).splitlines()[-1])
    return answer["prompt_tokens"], answer["tokens"]


def theirs(server, ids):
    body = {"prompt": ids, "n_predict": TOKENS, "temperature": 0, "return_tokens": True, "cache_prompt": False}
    body |= {"samplers": ["top_k"], "top_k": 1, "repeat_penalty": 1.0}
    return server.ask("/completion", body)["tokens"]


class Server:
    """llama.cpp's server with a model in F32."""

    def __init__(self, peers, model):
        self.port = 18473
        options = ["-m", model, "-c", 1024, "--port", self.port, "-ctk", "f32", "-ctv", "f32", "-np", 1, "-fa", "off"]
        command = [str(part) for part in [peers / "llama-server", *options]]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        import time

        for _ in range(600):
            try:
                if self.ask("/health", None)["status"] == "ok":
                    return self
            except OSError:
                time.sleep(0.5)
        raise RuntimeError("llama-server does not answer")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, path, body):
        import urllib.request

        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.loads(answer.read())


def check(orlop, work, peers, model, text):
    mine, their = perplexities(orlop, peers, model, text)
    far = abs(mine / their - 1.0)
    good = far <= 0.01
    print(f"{model.name}: perplexity {mine:.4f}, llama-perplexity {their:.4f}, {100 * far:.2f} % apart", flush=True)
    exact = work / f"{model.stem}.F32.gguf"
    run(orlop, "quantize", model, exact, "F32")
    equal, close, other = 0, 0, []
    with Server(peers, exact) as server:
        for prompt in PROMPTS:
            ids, tokens = ours(orlop, exact, prompt)
            found = theirs(server, ids)
            differs = next((at for at, pair in enumerate(zip(tokens, found)) if pair[0] != pair[1]), None)
            if differs is None and (len(tokens) == len(found) or min(len(tokens), len(found)) > 0):
                equal += 1
                continue
            best, second = top(orlop, exact, ids + tokens[:differs])
            if best[1] - second[1] < CLOSE:
                close += 1
            else:
                other.append((prompt, differs, best, second))
    exact.unlink()
    print(f"{model.name}: of {len(PROMPTS)} prompts {equal} equal, {close} where the best logits are close, {len(other)} other")
    for prompt, *where in other:
        print(f"    {prompt!r}: {where}")
    return good and not other


def main(orlop, work, peers, text, *models):
    work, peers = pathlib.Path(work), pathlib.Path(peers)
    return all([check(orlop, work, peers, pathlib.Path(model), text) for model in models])


if __name__ == "__main__":
    sys.exit(0 if main(*sys.argv[1:]) else 1)
