"""Lines of Python in documents, and the notebook."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["README.md", "docs/src/guide/python.md"])
def test_documents_print_what_they_say(name: str) -> None:
    text = (ROOT / name).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, name, 0)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=flags)
    report: list[str] = []
    runner.run(test, out=report.append)
    assert test.examples and not report, "".join(report)


def test_the_notebook_runs() -> None:
    notebook = nbformat.read(ROOT / "examples/python/orlop.ipynb", as_version=4)
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    shown = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("text/html" in data for data in shown) >= 3
    text = "".join(str(data.get("text/plain", "")) for data in shown)
    assert "Paris" in text and "plain" in text


@pytest.mark.parametrize(("name", "says"), [("generate", "cpu: "), ("sequences", "The capital of Spain is Madrid.")])
def test_the_examples_run(name: str, says: str) -> None:
    program = ROOT / f"examples/python/{name}.py"
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and says in done.stdout, done.stdout + done.stderr
