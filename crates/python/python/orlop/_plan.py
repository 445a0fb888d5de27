"""Plans of buffers, and pictures of all kinds of plans."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from orlop import _orlop


class _Pictured(Protocol):
    def html(self) -> str: ...
    def svg(self) -> str: ...
    def beside(self, other: Any, /) -> tuple[str, str]: ...


def _frame(page: str, height: int) -> str:
    return (
        f'<iframe srcdoc="{html.escape(page)}" style="width:100%;height:{height}px;border:0" '
        'sandbox="allow-scripts"></iframe>'
    )


class Picture:
    """A plan that shows itself: in a notebook, as a page or as SVG."""

    def __init__(self, pictured: _Pictured) -> None:
        self._pictured = pictured

    def html(self) -> str:
        """A page that needs no other files."""
        return self._pictured.html()

    def svg(self) -> str:
        """A still picture."""
        return self._pictured.svg()

    def _repr_html_(self) -> str:
        return _frame(self.html(), 480)


class Comparison:
    """Two plans side by side."""

    def __init__(self, page: str, text: str) -> None:
        self._page = page
        self._text = text

    def html(self) -> str:
        """A page that needs no other files."""
        return self._page

    def __str__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return _frame(self._page, 560)


def compare(before: Picture, after: Picture) -> Comparison:
    """Compares two plans of one kind."""
    return Comparison(*before._pictured.beside(after._pictured))


class BufferPlan(Picture):
    """An offset for every buffer."""

    def __init__(self, plan: _orlop.BufferPlan) -> None:
        super().__init__(plan)
        self.offsets: npt.NDArray[np.uint64] = np.array(plan.offsets, dtype=np.uint64)
        #: Bytes of the arena.
        self.peak: int = plan.peak
        #: No plan is smaller.
        self.bound: int = plan.bound
        #: Whether the peak is proven minimal.
        self.optimal: bool = plan.optimal
        self.strategy: str = plan.strategy

    @property
    def gap(self) -> int:
        """Bytes above the bound."""
        return self.peak - self.bound

    def __repr__(self) -> str:
        return f"<orlop.BufferPlan: {len(self.offsets)} buffers, peak {self.peak}, bound {self.bound}>"


def _column(values: Any) -> list[int]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise TypeError(f"a column must be a list of integers, not {array.ndim}-dimensional {array.dtype}")
    return [int(value) for value in array]


def solve(
    problem: Any = None,
    *,
    size: Iterable[int] | None = None,
    lower: Iterable[int] | None = None,
    upper: Iterable[int] | None = None,
    align: int | Iterable[int] = 1,
    names: Iterable[str] | None = None,
    capacity: int | None = None,
    strategy: str = "best",
    effort: int | None = None,
) -> BufferPlan:
    """Places buffers that are live from step `lower` to before step `upper`, in as little memory as it finds.

    `problem` is a table, such as a pandas frame or a dict, with the columns `size`, `lower`, `upper`, and `id` and `align` if it
    has them; or the columns are given by name.
    """
    if problem is not None:
        has = set(problem.keys())
        size, lower, upper = problem["size"], problem["lower"], problem["upper"]
        names = problem["id"] if "id" in has and names is None else names
        align = problem["align"] if "align" in has else align
    if size is None or lower is None or upper is None:
        raise TypeError("a problem has the columns size, lower and upper")
    sizes = _column(size)
    aligns = [align] * len(sizes) if isinstance(align, int) else _column(align)
    named = [f"b{index}" for index in range(len(sizes))] if names is None else [str(name) for name in names]
    columns = (named, sizes, _column(lower), _column(upper), aligns)
    return BufferPlan(_orlop.plan_buffers(*columns, capacity, strategy, effort))


def devices() -> list[dict[str, Any]]:
    """The devices of this machine: name, kind, description, total and free bytes."""
    found: list[dict[str, Any]] = json.loads(_orlop.devices())
    return found
