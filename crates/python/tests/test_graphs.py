"""Graphs: built, placed and run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import orlop

W = np.array([[1, 2], [-1, 1], [0.5, -4]], dtype=np.float32)


def product() -> orlop.Graph:
    b = orlop.GraphBuilder()
    x = b.input("x", (2,))
    w = b.weight("w", (3, 2))
    b.output(b.relu(b.mul_mat(w, x)), "y")
    return b.build()


def test_a_graph_computes_what_numpy_computes() -> None:
    b = orlop.GraphBuilder()
    x = b.input("x", (4, 8))
    w = b.weight("w", (16, 8))
    assert (x.shape, x.dtype) == ((4, 8), "f32")
    y = b.mul_mat(w, x)
    assert y.shape == (4, 16)
    b.output((y + 1) * y / 2 - y, "y")
    b.output(b.rms_norm(x), "norm")
    graph = b.build()
    rng = np.random.default_rng(1)
    given, weight = rng.normal(size=(4, 8)).astype(np.float32), rng.normal(size=(16, 8)).astype(np.float32)
    results = orlop.Session().prepare(graph, {"w": weight}).run({"x": given})
    y_ = given @ weight.T
    np.testing.assert_allclose(results["y"], (y_ + 1) * y_ / 2 - y_, rtol=1e-4, atol=1e-4)
    norm = given / np.sqrt((given**2).mean(axis=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(results["norm"], norm, rtol=1e-4)


def test_a_prepared_graph_runs_again_and_results_stay() -> None:
    prepared = orlop.Session().prepare(product(), {"w": W})
    first = prepared.run({"x": np.array([3, 1], dtype=np.float32)})["y"]
    second = prepared.run({"x": np.array([1, 0], dtype=np.float32)})["y"]
    assert first.tolist() == [5, 0, 0] and second.tolist() == [1, 0, 0.5]
    assert prepared.memory["cpu"] > 0


def test_nodes_run_on_the_devices_that_they_were_assigned_to_with_a_reason() -> None:
    b = orlop.GraphBuilder()
    x = b.input("x", (4,))
    doubled = (x * 2).named("doubled")
    squared = b.output(b.unary("sqr", doubled), "squared")
    graph = b.build()
    session = orlop.Session(["cpu", orlop.cpu("plain", instructions="scalar")])
    assert session.devices == ["cpu", "plain"]
    prepared = session.prepare(graph, assigned={doubled: "cpu", "squared": "plain"})
    assert [(node.tensor, node.device) for node in prepared.placement] == [("doubled", "cpu"), ("squared", "plain")]
    assert prepared.placement[1].reason == "assigned" and prepared.placement[1].op == "sqr"
    assert prepared.run({"x": np.arange(4, dtype=np.float32)})["squared"].tolist() == [0, 4, 16, 36]


class Foreign:
    """An array of another library, which only has DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries_come_and_go_by_dlpack() -> None:
    prepared = orlop.Session().prepare(product(), {"w": Foreign(W)})
    result = prepared.run({"x": Foreign(np.array([3, 1], dtype=np.float32))})["y"]
    again = np.from_dlpack(Foreign(result))
    assert again.tolist() == [5, 0, 0] and np.shares_memory(again, result)


def test_states_are_written_and_other_types_converted() -> None:
    b = orlop.GraphBuilder()
    x = b.input("x", (2,), "f16")
    s = b.state("s", (2,))
    b.output(b.node("copy", x, s), "written")
    prepared = orlop.Session().prepare(b.build(), {"s": np.zeros(2, dtype=np.float32)})
    prepared.run({"x": np.array([1.5, -2], dtype=np.float16)})
    assert prepared.get("s").tolist() == [1.5, -2]


def test_views_and_byte_orders_of_numpy_are_understood() -> None:
    prepared = orlop.Session().prepare(product(), {"w": np.asfortranarray(W)})
    swapped = np.array([3, 9, 1, 9], dtype=">f4")[::2]
    assert prepared.run({"x": swapped})["y"].tolist() == [5, 0, 0]


def test_a_graph_is_the_same_from_json() -> None:
    graph = orlop.Graph.from_json(product().to_json())
    assert graph.outputs == ["y"] and graph.shape("w") == (3, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.run({"x": np.zeros(2, dtype=np.float64)}), "f32, and f64"),
        (lambda p: p.run({"x": np.zeros(3, dtype=np.float32)}), r"\(2,\), and \(3,\)"),
        (lambda p: p.run({"x": np.array(["a", "b"])}), "f32"),
        (lambda p: p.run({"nothing": np.zeros(2)}), "nothing"),
        (lambda p: p.get("nothing"), "nothing"),
        (lambda p: p.set("y", np.zeros(3, dtype=np.float32)), "y"),
        (lambda p: orlop.Session().prepare(p.graph, {"w": W[:2]}), r"\(3, 2\)"),
        (lambda p: orlop.Session().prepare(p.graph), "w"),
        (lambda p: orlop.Session().prepare(p.graph, {"w": W, "v": W}), "v"),
        (lambda p: orlop.Session(["nothing"]), "nothing"),
        (lambda p: orlop.Session(["cpu", "cpu"]), "cpu"),
        (lambda p: orlop.Session().prepare(p.graph, {"w": W}, assigned={"y": "gpu"}), "gpu"),
    ],
)
def test_bad_input_is_an_exception(call: Any, message: str) -> None:
    prepared = orlop.Session().prepare(product(), {"w": W})
    with pytest.raises((orlop.OrlopError, ValueError, TypeError, KeyError), match=message):
        call(prepared)
    assert prepared.run({"x": np.array([3, 1], dtype=np.float32)})["y"].tolist() == [5, 0, 0]


def test_refused_nodes_are_reported_with_names_and_numbers() -> None:
    b = orlop.GraphBuilder()
    x = b.input("x", (3,))
    b.output(b.mul_mat(b.weight("w", (4, 2)), x))
    with pytest.raises(orlop.OrlopError, match="mul_mat"):
        b.build()
    with pytest.raises(ValueError, match="unknown variant"):
        orlop.GraphBuilder().node("nothing")
    with pytest.raises(ValueError, match="another graph"):
        orlop.GraphBuilder().node("add", x, x)


def test_a_result_before_the_first_run_is_an_exception() -> None:
    prepared = orlop.Session().prepare(product(), {"w": W})
    with pytest.raises(orlop.OrlopError):
        prepared.get("y")


def test_a_closed_session_refuses_to_work() -> None:
    session = orlop.Session()
    prepared = session.prepare(product(), {"w": W})
    session.close()
    with pytest.raises(orlop.ClosedError):
        prepared.run({"x": np.zeros(2, dtype=np.float32)})


def test_a_prepared_graph_shows_its_memory() -> None:
    prepared = orlop.Session().prepare(product(), {"w": W})
    assert prepared.svg().startswith("<svg") and "<iframe" in prepared._repr_html_()


def test_tensors_of_another_builder_are_refused() -> None:
    builder, other = orlop.GraphBuilder(), orlop.GraphBuilder()
    x, foreign = builder.input("x", (2,)), other.input("y", (2,))
    builder.output(builder.relu(x), "z")
    graph = builder.build()
    assert graph.index(x) == graph.index("x") and graph.shape(x) == (2,)
    prepared = orlop.Session().prepare(graph)
    for given in (graph, orlop.Graph.from_json(graph.to_json())):
        with pytest.raises(ValueError, match="another graph"):
            given.index(foreign)
    with pytest.raises(ValueError, match="another graph"):
        prepared.set(foreign, np.zeros(2, dtype=np.float32))
