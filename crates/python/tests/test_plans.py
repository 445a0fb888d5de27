"""Plans of buffers, and their pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import orlop

COLUMNS = {"id": ["a", "b", "c"], "size": [4096, 1000, 4096], "lower": [0, 1, 2], "upper": [2, 3, 4]}


@pytest.mark.parametrize(
    "problem",
    [COLUMNS, pd.DataFrame(COLUMNS), {name: np.array(column) for name, column in COLUMNS.items()}],
)
def test_a_table_is_planned(problem: Any) -> None:
    plan = orlop.solve(problem)
    assert plan.offsets[0] == plan.offsets[2] and plan.optimal
    assert (plan.peak, plan.bound, plan.gap) == (5096, 5096, 0)


def test_columns_are_planned() -> None:
    plan = orlop.solve(size=[4096, 1000], lower=[0, 1], upper=[2, 3], align=64)
    assert plan.peak == 4096 + 1024 and (plan.offsets % 64 == 0).all()


def test_no_buffers_take_no_bytes() -> None:
    assert orlop.solve(size=[], lower=[], upper=[]).peak == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": [1], "lower": [0], "upper": [0]}, "b0"),
        ({"size": [1], "lower": [0], "upper": [1], "align": 3}, "3"),
        ({"size": [1, 2], "lower": [0], "upper": [1]}, "same length"),
        ({"size": [1.5], "lower": [0], "upper": [1]}, "float"),
        ({"size": [-1], "lower": [0], "upper": [1]}, "sizes"),
        ({"size": [100], "lower": [0], "upper": [1], "capacity": 50}, "50"),
        ({"size": [100], "lower": [0], "upper": [1], "strategy": "magic"}, "magic"),
        ({"size": [100]}, "columns"),
    ],
)
def test_bad_problems_are_exceptions(given: Any, message: str) -> None:
    with pytest.raises((orlop.OrlopError, ValueError, TypeError, OverflowError), match=message):
        orlop.solve(**given)


def test_plans_show_themselves_and_what_differs() -> None:
    plan, other = orlop.solve(COLUMNS), orlop.solve(COLUMNS, align=512)
    assert plan.html().startswith("<!doctype html>") and plan.svg().startswith("<svg")
    shown = plan._repr_html_()
    assert shown.startswith("<iframe") and "&lt;!doctype html" in shown
    comparison = orlop.compare(plan, other)
    assert "<iframe" in comparison._repr_html_() and comparison.html() != plan.html() and str(comparison)


def test_models_show_their_memory_and_what_differs(tiny_path: str) -> None:
    small, large = (orlop.plan(tiny_path, context=context, threads=1) for context in (64, 128))
    assert "context 64" in small.html() and small.svg().startswith("<svg")
    assert small.total < large.total and "KV" in str(orlop.compare(small, large)).replace("kv", "KV").replace("cache", "KV")


def test_devices_are_listed() -> None:
    found = orlop.devices()
    assert found[0]["name"] == "cpu" and found[0]["kind"] == "cpu" and found[0]["total"] > 0
