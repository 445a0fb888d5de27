"""Answers of the default model that have to match a JSON schema, validated by `jsonschema`.

Called by `cargo xtask check schemas` with the `orlop` command, a folder, the number of schemas and a seed. Schemas are generated
from the seed with every keyword that the documentation lists, nested, with references. Beside them, those that the package
`check-jsonschema` carries are asked for; the server may refuse them, with a sentence. Every answer that ends with `stop` has to
validate, and 95 % of the answers to generated schemas have to end so.
"""

import collections
import concurrent.futures
import http.client
import importlib.resources
import json
import random
import sys
import urllib.parse

import jsonschema

from served import serving

STREAMS = 16
TOKENS = 768
WORDS = "name city colour count price start end kind items tags owner size left right note state score level unit code".split()
PATTERNS = ["^[a-z]{2,8}$", "^[A-Z]{3}-[0-9]{4}$", "^(red|green|blue)$", "^#[0-9a-f]{6}$", "^[0-9]{1,3}(\\.[0-9]{2})?$"]
FORMATS = ["date", "time", "date-time", "uuid", "ipv4", "email", "hostname"]


class Generator:
    """Schemas from a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.definitions = {}

    def some(self, chance):
        return self.random.random() < chance

    def whole(self):
        """A schema whose root is an object, as clients send it."""
        self.definitions = {}
        for name in self.random.sample(["address", "point", "money"], self.random.randint(0, 2)):
            self.definitions[name] = self.object(1)
        schema = self.object(3)
        if self.definitions:
            schema["$defs"] = self.definitions
        return schema

    def value(self, depth):
        kinds = [self.string, self.string, self.number, self.integer, self.choice, self.constant, self.boolean, self.nullable]
        if depth > 0:
            kinds += [self.object, self.array, self.array, self.tuple, self.any_of, self.one_of, self.map, self.all_of]
            if self.definitions:
                kinds += [self.reference, self.reference]
        made = self.random.choice(kinds)(depth)
        if self.some(0.1):
            made = {**made, "description": "What it is."} if isinstance(made, dict) else made
        return made

    def reference(self, _):
        return {"$ref": "#/$defs/" + self.random.choice(sorted(self.definitions))}

    def boolean(self, _):
        return {"type": "boolean"}

    def constant(self, _):
        return {"const": self.random.choice(["fixed", 7, -1.5, True, None, ["a", 1], {"k": "v"}])}

    def choice(self, _):
        values = self.random.sample(["red", "green", "blue", "déjà vu", "a\"b", 1, 2.5, False, None], self.random.randint(1, 5))
        return {"enum": values}

    def nullable(self, _):
        return {"type": self.random.choice([["string", "null"], ["integer", "null"], ["number", "boolean"]]), "maxLength": 20}

    def string(self, _):
        kind = self.random.randrange(4)
        if kind == 0:
            least = self.random.randint(0, 5)
            return {"type": "string", "minLength": least, "maxLength": least + self.random.randint(0, 20)}
        if kind == 1:
            return {"type": "string", "pattern": self.random.choice(PATTERNS)}
        if kind == 2:
            return {"type": "string", "format": self.random.choice(FORMATS)}
        return {"type": "string", "maxLength": 40}

    def bounds(self, schema, numbers):
        low, width = self.random.choice(numbers), self.random.choice([0, 1, 10, 1000])
        if self.some(0.7):
            schema["minimum" if width == 0 or self.some(0.6) else "exclusiveMinimum"] = low
        if self.some(0.7):
            schema["maximum" if width == 0 or self.some(0.6) else "exclusiveMaximum"] = low + width + 2 * (width > 0)
        return schema

    def integer(self, _):
        schema = self.bounds({"type": "integer"}, [-1000, -7, 0, 1, 12, 99999])
        if "minimum" not in schema and "maximum" not in schema and self.some(0.3):
            schema = {"type": "integer", "multipleOf": self.random.choice([2, 5, 10]), "minimum": 0, "maximum": 1000}
        return schema

    def number(self, _):
        return self.bounds({"type": "number"}, [-1000.5, -1, 0, 0.25, 3])

    def array(self, depth):
        least = self.random.randint(0, 2)
        return {"type": "array", "items": self.value(depth - 1), "minItems": least, "maxItems": least + self.random.randint(0, 3)}

    def tuple(self, depth):
        items = [self.value(depth - 1) for _ in range(self.random.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}

    def any_of(self, depth):
        return {"anyOf": [self.value(depth - 1) for _ in range(self.random.randint(2, 3))]}

    def one_of(self, depth):
        """Alternatives that differ by a tag: no value is two of them."""
        tagged = []
        for tag in self.random.sample(["circle", "square", "line"], 2):
            schema = self.object(depth - 1)
            schema["properties"] = {"tag": {"const": tag}, **schema["properties"]}
            schema["required"] = ["tag", *schema["required"]]
            tagged.append(schema)
        return {"oneOf": tagged}

    def all_of(self, depth):
        first, second = self.object(depth - 1), self.object(depth - 1)
        for schema in (first, second):
            schema.pop("additionalProperties", None)
        shared = set(first["properties"]) & set(second["properties"])
        for name in shared:
            del second["properties"][name]
        second["required"] = [name for name in second["required"] if name not in shared]
        return {"allOf": [first, second]}

    def map(self, depth):
        values = self.value(depth - 1)
        if self.some(0.5):
            return {"type": "object", "additionalProperties": values, "maxProperties": 3}
        return {"type": "object", "patternProperties": {"^[a-z]{1,6}$": values}, "additionalProperties": False, "maxProperties": 3}

    def object(self, depth):
        names = self.random.sample(WORDS, self.random.randint(1, 4))
        properties = {name: self.value(depth - 1) for name in names}
        schema = {"type": "object", "properties": properties, "required": [name for name in names if self.some(0.7)]}
        if self.some(0.4):
            schema["additionalProperties"] = False
        return schema


def public():
    """Schemas that other projects publish, with their names."""
    folder = importlib.resources.files("check_jsonschema").joinpath("builtin_schemas", "vendor")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".json"):
            yield file.name, json.loads(file.read_text())


def ask(url, index, schema):
    body = {
        "messages": [{"role": "user", "content": "Write an example of such an object, with short values."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "example", "schema": schema, "strict": True}},
        "max_tokens": TOKENS,
        "seed": index,
    }
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=1200)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def judge(status, answer, schema):
    """What became of a request: a word, and a sentence where something is wrong."""
    if status == 400:
        return "refused", answer["error"]["message"]
    if status != 200:
        return "wrong", f"{status}: {answer}"
    choice = answer["choices"][0]
    if choice["finish_reason"] != "stop":
        return choice["finish_reason"], choice["message"]["content"][-80:]
    text = choice["message"]["content"]
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        value = json.loads(text)
    except ValueError as error:
        return "wrong", f"no JSON ({error}): {text!r}"
    errors = [error.message for error in kind(schema, format_checker=kind.FORMAT_CHECKER).iter_errors(value)]
    return ("wrong", f"{errors[0][:200]} in {text[:400]!r}") if errors else ("stop", "")


def run(url, named):
    counts, seen = collections.Counter(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        asked = [(name, schema, pool.submit(ask, url, index, schema)) for index, (name, schema) in enumerate(named)]
        for name, schema, answer in asked:
            word, sentence = judge(*answer.result(), schema)
            counts[word] += 1
            if word == "wrong":
                print(f"{name}: {sentence}\n    {json.dumps(schema)[:600]}")
            elif word != "stop":
                seen[(word, sentence[:120])] += 1
    for (word, sentence), count in seen.most_common(12):
        print(f"{count} × {word}: {sentence}")
    print(", ".join(f"{word}: {count}" for word, count in sorted(counts.items())))
    return counts


def main():
    orlop, _, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    generated = [(f"schema {index}", Generator(seed + index).whole()) for index in range(count)]
    with serving(orlop, "--parallel", str(STREAMS), "-c", str(STREAMS * 1024)) as server:
        print(f"{count} generated schemas")
        counts = run(server.url, generated)
        print("public schemas")
        others = run(server.url, list(public()))
    stopped = counts["stop"] / max(count, 1)
    assert counts["wrong"] + others["wrong"] == 0, "answers that do not match their schemas"
    assert counts["refused"] == 0, "schemas with keywords of the documentation are refused"
    assert stopped >= 0.95, f"{stopped:.1%} of the answers end"


if __name__ == "__main__":
    main()
