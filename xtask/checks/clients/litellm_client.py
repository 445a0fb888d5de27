"""LiteLLM, with OpenAI's API and Anthropic's."""

import importlib.metadata
import json
import sys

import litellm

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "forecast", "description": "The weather.", "parameters": SCHEMA}}
ASKED = [{"role": "user", "content": "What will the weather be in Kiel in the next 3 days?"}]


def ask(provider, **options):
    base = sys.argv[1] + ("/v1" if provider == "openai" else "")
    options = {"max_tokens": 200, "temperature": 0, **options}
    return litellm.completion(model=f"{provider}/any", api_base=base, api_key="none", messages=ASKED, max_retries=0, **options)


def fits(text):
    assert set(json.loads(text)) == {"city", "days"}, text


def stream():
    for provider in ("openai", "anthropic"):
        whole = ask(provider, max_tokens=40).choices[0].message.content
        chunks = ask(provider, max_tokens=40, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole, provider


def tools():
    for provider in ("openai", "anthropic"):
        options = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
        fits(ask(provider, **options).choices[0].message.tool_calls[0].function.arguments)
        chunks = list(ask(provider, **options, stream=True))
        whole = litellm.stream_chunk_builder(chunks)
        fits(whole.choices[0].message.tool_calls[0].function.arguments)


def schema():
    response_format = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": SCHEMA}}
    fits(ask("openai", response_format=response_format).choices[0].message.content)


def cancel():
    for count, _ in enumerate(ask("openai", stream=True, max_tokens=4000)):
        if count == 3:
            break


for check in (stream, tools, schema, cancel):
    check()
    print(f"  {check.__name__}")
print(f"  litellm {importlib.metadata.version('litellm')}")
