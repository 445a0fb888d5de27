"""OpenAI's client: chats, responses, completions."""

import json
import sys

import openai

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "forecast", "description": "The weather.", "parameters": SCHEMA}}
ASKED = [{"role": "user", "content": "What will the weather be in Kiel in the next 3 days?"}]

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
MODEL = client.models.list().data[0].id


def fits(text):
    value = json.loads(text)
    assert set(value) == {"city", "days"} and 1 <= value["days"] <= 9, text


def stream():
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    options = {"model": MODEL, "messages": asked, "temperature": 0, "max_tokens": 400}
    whole = client.chat.completions.create(**options)
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content, text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    with client.chat.completions.stream(**options) as events:
        for _ in events:
            pass
        assert events.get_final_completion().choices[0].message.content == text


def tools():
    # The model would call it again and again.
    one = {"tool_choice": "required", "parallel_tool_calls": False}
    options = {"model": MODEL, "messages": ASKED, "tools": [TOOL], "max_tokens": 200, **one}
    message = client.chat.completions.create(**options).choices[0].message
    call = message.tool_calls[0]
    fits(call.function.arguments)
    with client.chat.completions.stream(**options) as events:
        pieces = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
        final = events.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls" and len(pieces) > 1, (final, len(pieces))
    fits(final.message.tool_calls[0].function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": '{"weather": "rain"}'}
    history = [*ASKED, message.to_dict(), result]
    answer = client.chat.completions.create(model=MODEL, messages=history, tools=[TOOL], max_tokens=30)
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")


def schema():
    response_format = {"type": "json_schema", "json_schema": {"name": "trip", "strict": True, "schema": SCHEMA}}
    answer = client.chat.completions.create(
        model=MODEL, messages=ASKED, response_format=response_format, max_tokens=200, seed=1
    )
    fits(answer.choices[0].message.content)


def responses():
    answer = client.responses.create(model=MODEL, input="Say hello.", max_output_tokens=20, temperature=0)
    text = ""
    with client.responses.stream(model=MODEL, input="Say hello.", max_output_tokens=20, temperature=0) as events:
        for event in events:
            text += event.delta if event.type == "response.output_text.delta" else ""
    assert text == answer.output_text, (text, answer.output_text)
    tool = {"type": "function", **TOOL["function"], "strict": True}
    options = {"model": MODEL, "input": ASKED[0]["content"], "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    with client.responses.stream(**options, max_output_tokens=200) as events:
        pieces = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
        final = events.get_final_response()
    assert final.output[0].arguments == pieces
    fits(pieces)
    structured = {"format": {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}}
    fits(client.responses.create(model=MODEL, input=ASKED[0]["content"], text=structured, max_output_tokens=200).output_text)


def completions():
    answer = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=5, logprobs=2, temperature=0)
    assert len(answer.choices[0].logprobs.tokens) == 5


def errors():
    try:
        client.chat.completions.create(model=MODEL, messages=ASKED * 4000)
    except openai.BadRequestError as error:
        assert error.code == "context_length_exceeded", error
    else:
        raise AssertionError("a prompt beyond the context was taken")


def cancel():
    events = client.chat.completions.create(
        model=MODEL, messages=ASKED, stream=True, max_tokens=4000, extra_body={"ignore_eos": True}
    )
    for count, _ in enumerate(events):
        if count == 3:
            break
    events.close()


for check in (stream, tools, schema, responses, completions, errors, cancel):
    check()
    print(f"  {check.__name__}")
print(f"  openai {openai.__version__}")
