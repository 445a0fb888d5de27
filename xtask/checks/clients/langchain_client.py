"""LangChain's model of OpenAI's API."""

import importlib.metadata
import sys
from typing import Annotated

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

ASKED = "What will the weather be in Kiel in the next 3 days?"
Days = Annotated[int, Field(ge=1, le=9)]
City = Annotated[str, Field(max_length=20)]


class Trip(BaseModel):
    """A trip."""

    city: City
    days: Days


@tool
def forecast(city: City, days: Days) -> str:
    """The weather."""
    return f"rain in {city} for {days} days"


model = ChatOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", model="any", max_tokens=200, temperature=0, max_retries=0)


def stream():
    assert "".join(chunk.text for chunk in model.stream(ASKED)) == model.invoke(ASKED).text


def tools():
    bound = model.bind_tools([forecast], tool_choice="forecast", parallel_tool_calls=False)
    message = None
    for chunk in bound.stream(ASKED):
        message = chunk if message is None else message + chunk
    Trip(**message.tool_calls[0]["args"])


def schema():
    for method in ("json_schema", "function_calling"):
        assert isinstance(model.with_structured_output(Trip, method=method).invoke(ASKED), Trip), method


def cancel():
    long = model.bind(max_tokens=4000, extra_body={"ignore_eos": True})
    events = long.stream(ASKED)
    for _ in range(3):
        next(events)
    events.close()


for check in (stream, tools, schema, cancel):
    check()
    print(f"  {check.__name__}")
print(f"  langchain-openai {importlib.metadata.version('langchain-openai')}")
