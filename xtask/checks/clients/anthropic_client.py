"""Anthropic's client: messages."""

import sys

import anthropic

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [{"name": "forecast", "description": "The weather.", "input_schema": SCHEMA}]
ASKED = [{"role": "user", "content": "What will the weather be in Kiel in the next 3 days?"}]

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
MODEL = "any"


def stream():
    # Newer versions have no argument for it.
    greedy = {"temperature": 0}
    options = {"model": MODEL, "messages": ASKED, "max_tokens": 40, "extra_body": greedy}
    whole = client.messages.create(**options)
    with client.messages.stream(**options) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    assert text == whole.content[0].text == final.content[0].text, text
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert client.messages.count_tokens(model=MODEL, messages=ASKED).input_tokens == (
        whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    )


def tools():
    options = {"model": MODEL, "messages": ASKED, "max_tokens": 200, "tools": TOOLS}
    # The model would call it again and again.
    options["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
    pieces = 0
    with client.messages.stream(**options) as events:
        for event in events:
            pieces += event.type == "input_json"
        final = events.get_final_message()
    call = final.content[-1]
    assert final.stop_reason == "tool_use" and call.name == "forecast" and pieces > 1, (final, pieces)
    assert set(call.input) == {"city", "days"} and 1 <= call.input["days"] <= 9, call
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    history = [*ASKED, {"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(model=MODEL, messages=history, tools=TOOLS, max_tokens=30)
    assert answer.stop_reason in ("end_turn", "max_tokens", "tool_use")


def schema():
    """A schema is a tool that has to be used."""
    choice = {"type": "tool", "name": "forecast", "disable_parallel_tool_use": True}
    options = {"model": MODEL, "messages": ASKED, "max_tokens": 200, "tools": TOOLS, "tool_choice": choice}
    call = client.messages.create(**options).content[-1]
    assert set(call.input) == {"city", "days"}, call


def cancel():
    with client.messages.stream(model=MODEL, messages=ASKED, max_tokens=4000) as events:
        for count, _ in enumerate(events):
            if count == 3:
                break


for check in (stream, tools, schema, cancel):
    check()
    print(f"  {check.__name__}")
print(f"  anthropic {anthropic.__version__}")
