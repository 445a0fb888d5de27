"""Tensor graphs: building them, and running them on devices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Any

from orlop import _orlop
from orlop._arrays import Array, to_contents, to_numpy
from orlop._plan import Picture

Scalar = int | float


class Tensor:
    """A tensor of a graph that is built. Its shape is numpy's: the last dimension is contiguous in memory."""

    def __init__(self, builder: GraphBuilder, index: int) -> None:
        self.builder = builder
        self.index = index

    @property
    def shape(self) -> tuple[int, ...]:
        """Without outer dimensions of 1."""
        return tuple(self.builder._graph.shape(self.index))

    @property
    def dtype(self) -> str:
        """The element type, such as `f32`."""
        return self.builder._graph.dtype(self.index)

    def __add__(self, other: Tensor | Scalar) -> Tensor:
        if isinstance(other, Tensor):
            return self.builder.node("add", self, other)
        return self.builder.scale(self, 1.0, other)

    def __sub__(self, other: Tensor | Scalar) -> Tensor:
        if isinstance(other, Tensor):
            return self.builder.node("sub", self, other)
        return self.builder.scale(self, 1.0, -other)

    def __mul__(self, other: Tensor | Scalar) -> Tensor:
        if isinstance(other, Tensor):
            return self.builder.node("mul", self, other)
        return self.builder.scale(self, other)

    def __truediv__(self, other: Tensor | Scalar) -> Tensor:
        if isinstance(other, Tensor):
            return self.builder.node("div", self, other)
        return self.builder.scale(self, 1 / other)

    def __neg__(self) -> Tensor:
        return self.builder.scale(self, -1.0)

    def named(self, name: str) -> Tensor:
        """The same tensor, under this name."""
        self.builder._graph.name(self.index, name)
        return self


class GraphBuilder:
    """Builds a graph. Refused calls are reported by `build`, with names and numbers.

    Every op of the library is a node: `builder.node("rms_norm", x, eps=1e-6)`. The page "Ops and devices" of the book lists
    them; parameters are those of the library.
    """

    def __init__(self) -> None:
        self._graph = _orlop.GraphMaking()

    def _leaf(self, kind: str, name: str, shape: SequenceOf[int], dtype: str) -> Tensor:
        return Tensor(self, self._graph.leaf(kind, name, dtype, list(shape)))

    def input(self, name: str, shape: SequenceOf[int], dtype: str = "f32") -> Tensor:
        """A tensor that is set before each run."""
        return self._leaf("input", name, shape, dtype)

    def persistent(self, name: str, shape: SequenceOf[int], dtype: str = "f32") -> Tensor:
        """A tensor that keeps its contents between runs."""
        return self._leaf("persistent", name, shape, dtype)

    def weight(self, name: str, shape: SequenceOf[int], dtype: str = "f32") -> Tensor:
        """A tensor that is given when the graph is prepared, and only read."""
        return self._leaf("weight", name, shape, dtype)

    def state(self, name: str, shape: SequenceOf[int], dtype: str = "f32") -> Tensor:
        """A tensor that is given when the graph is prepared, and that nodes write."""
        return self._leaf("state", name, shape, dtype)

    def node(self, op: str, *inputs: Tensor, **parameters: Any) -> Tensor:
        """A node of any op."""
        described: Any = {op: parameters} if parameters else op
        for tensor in inputs:
            if tensor.builder is not self:
                raise ValueError(f"tensor {tensor.index} belongs to another graph")
        return Tensor(self, self._graph.node(json.dumps(described), [tensor.index for tensor in inputs]))

    def unary(self, function: str, x: Tensor) -> Tensor:
        """A function of each element, such as `relu`, `silu`, `gelu`, `exp` or `sqr`."""
        return Tensor(self, self._graph.node(json.dumps({"unary": function}), [x.index]))

    def scale(self, x: Tensor, scale: Scalar, bias: Scalar = 0.0) -> Tensor:
        """`scale * x + bias`."""
        return self.node("scale", x, scale=float(scale), bias=float(bias))

    def mul_mat(self, weight: Tensor, x: Tensor) -> Tensor:
        """`x @ weight.T`: of a weight of shape `(out, in)` and rows of length `in`."""
        return self.node("mul_mat", weight, x)

    def relu(self, x: Tensor) -> Tensor:
        """`max(x, 0)`."""
        return self.unary("relu", x)

    def silu(self, x: Tensor) -> Tensor:
        """`x * sigmoid(x)`."""
        return self.unary("silu", x)

    def rms_norm(self, x: Tensor, eps: float = 1e-6) -> Tensor:
        """Rows divided by their root mean square."""
        return self.node("rms_norm", x, eps=eps)

    def output(self, x: Tensor, name: str | None = None) -> Tensor:
        """Declares an output."""
        if name is not None:
            x.named(name)
        self._graph.output(x.index)
        return x

    def build(self) -> Graph:
        """The finished graph."""
        return Graph(self._graph.build(), self)


class Graph:
    """A graph, which never changes."""

    def __init__(self, graph: _orlop.FixedGraph, builder: GraphBuilder | None = None) -> None:
        self._graph = graph
        self._builder = builder
        self._tensors = graph.tensors()
        #: Names of the tensors.
        self.names = [name for name, *_ in self._tensors]
        #: Names of the outputs.
        self.outputs = [self.names[index] for index in graph.outputs()]

    @staticmethod
    def from_json(text: str) -> Graph:
        """A graph that `to_json` wrote."""
        return Graph(_orlop.FixedGraph.from_json(text))

    def to_json(self) -> str:
        """The graph as text."""
        return self._graph.to_json()

    def index(self, tensor: str | Tensor) -> int:
        """The number of a tensor, which is given by its name or as the builder of this graph gave it."""
        if isinstance(tensor, Tensor):
            if tensor.builder is not self._builder:
                raise ValueError(f"tensor {tensor.index} belongs to another graph")
            return tensor.index
        try:
            return self.names.index(tensor)
        except ValueError:
            raise KeyError(f"the graph has no tensor `{tensor}`") from None

    def shape(self, tensor: str | Tensor) -> tuple[int, ...]:
        """The shape of a tensor, without outer dimensions of 1."""
        return tuple(self._tensors[self.index(tensor)][2])


@dataclass(frozen=True)
class PlacedNode:
    """Where a node runs, and why."""

    tensor: str
    op: str
    device: str
    reason: str


def cpu(name: str, *, threads: int = 1, instructions: str = "best") -> tuple[str, int, str]:
    """A CPU device with a name of its own. `instructions`: `best`, `scalar`, `avx2`, `avx512`, `amx` or `neon`."""
    return (name, threads, instructions)


class Session:
    """Runs graphs on devices: names (`orlop.devices()`) or `orlop.cpu(…)`, the most preferred first."""

    def __init__(
        self, devices: SequenceOf[str | tuple[str, int, str]] = ("cpu",), *, threads: int | None = None
    ) -> None:
        self._session = _orlop.GraphSession.open(list(devices), threads)
        #: Names of the devices.
        self.devices = self._session.devices()

    def prepare(
        self,
        graph: Graph,
        externals: Mapping[str, Any] | None = None,
        *,
        on: Mapping[str, str] | None = None,
        assigned: Mapping[str | Tensor, str] | None = None,
    ) -> Prepared:
        """Places and plans a graph, and makes room for it.

        `externals` are the contents of weights and states by name: arrays of numpy, or of a library with DLPack. `on` says on
        which device they lie (by default the first), and `assigned` where single nodes run.
        """
        given = []
        for name, array in (externals or {}).items():
            dtype, shape, contents = to_contents(array)
            if name in graph.names and dtype != "u8":
                _check_shape(graph, name, shape)
            given.append((name, dtype, contents, (on or {}).get(name)))
        places = {graph.index(tensor): device for tensor, device in (assigned or {}).items()}
        return Prepared(graph, self._session.prepare(graph._graph, given, places))

    def close(self) -> None:
        """Frees the session's memory now."""
        self._session.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_shape(graph: Graph, name: str, shape: tuple[int, ...]) -> None:
    def used(extents: tuple[int, ...]) -> tuple[int, ...]:
        first = next((i for i, extent in enumerate(extents) if extent != 1), max(len(extents) - 1, 0))
        return extents[first:]

    expected = graph.shape(name)
    if used(shape) != used(expected) and not (shape == () and expected == (1,)):
        raise ValueError(f"`{name}` has the shape {expected}, and {shape} was given")


class Prepared(Picture):
    """A graph with memory on devices. It runs as often as you like."""

    def __init__(self, graph: Graph, prepared: _orlop.PreparedGraph) -> None:
        super().__init__(prepared)
        self.graph = graph
        self._prepared = prepared
        #: Where each node runs, and why.
        self.placement = [PlacedNode(**node) for node in json.loads(prepared.placement())]
        #: Bytes of each device's arena.
        self.memory: dict[str, int] = dict(prepared.memory())

    def set(self, tensor: str | Tensor, array: Any) -> None:
        """Sets an input, or a persistent tensor."""
        index = self.graph.index(tensor)
        dtype, shape, contents = to_contents(array)
        if dtype != "u8":
            _check_shape(self.graph, self.graph.names[index], shape)
        self._prepared.set(index, dtype, contents)

    def get(self, tensor: str | Tensor) -> Array:
        """An output of the last run, or a persistent tensor or state."""
        return to_numpy(self._prepared.get(self.graph.index(tensor)))

    def run(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Sets inputs, runs, and gives all outputs."""
        for name, array in (inputs or {}).items():
            self.set(name, array)
        self._prepared.run()
        return {name: self.get(name) for name in self.graph.outputs}
