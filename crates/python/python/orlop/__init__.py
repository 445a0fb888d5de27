"""Orlop: language models, tensor graphs and memory plans.

Models::

    import orlop
    model = orlop.Model()  # the default model; or orlop.Model("model.gguf")
    model.generate("The capital of France is", max_tokens=8, temperature=0)

Graphs are built with `GraphBuilder` and run with `Session`; `solve` plans buffers with lifetimes. Plans show themselves as
pictures in a notebook.
"""

from orlop._graph import Graph, GraphBuilder, PlacedNode, Prepared, Session, Tensor, cpu
from orlop._model import (
    Completion,
    DeviceMemory,
    Embedder,
    Message,
    Model,
    ModelPlan,
    Sampler,
    Sequence,
    TextStream,
    Tokenizer,
    plan,
)
from orlop._orlop import BusyError, ClosedError, ForkedError, OrlopError, __version__
from orlop._plan import BufferPlan, Comparison, compare, devices, solve

__all__ = [
    "BufferPlan",
    "BusyError",
    "ClosedError",
    "Comparison",
    "Completion",
    "DeviceMemory",
    "Embedder",
    "ForkedError",
    "Graph",
    "GraphBuilder",
    "Message",
    "Model",
    "ModelPlan",
    "OrlopError",
    "PlacedNode",
    "Prepared",
    "Sampler",
    "Sequence",
    "Session",
    "Tensor",
    "TextStream",
    "Tokenizer",
    "__version__",
    "compare",
    "cpu",
    "devices",
    "plan",
    "solve",
]
