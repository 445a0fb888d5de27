"""Models that tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import orlop


@pytest.fixture(scope="session")
def tiny_path() -> str:
    """A model of random weights, made by the test program in Rust."""
    return os.environ["ORLOP_TINY_MODEL"]


@pytest.fixture
def tiny(tiny_path: str) -> Iterator[orlop.Model]:
    with orlop.Model(tiny_path, threads=1, sequences=3) as model:
        yield model


@pytest.fixture(scope="session")
def model() -> orlop.Model:
    """The default model."""
    return orlop.Model(context=1024)
