"""The example notebook runs in a real kernel, and what it shows is what the library draws."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.project.markdown import ROOT

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: run `make integration`")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: run `make integration`")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: run `make integration`")

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def shown(cell: Any, kind: str = "text/html") -> str:
    """What a cell shows of a kind."""
    return "\n".join(output.data[kind] for output in cell.outputs if kind in output.get("data", {}))


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an example that fails; a bar that a notebook does not show; markup of a stored value taken as such."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "src"), *filter(None, sys.path))))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    kernel = tmp_path / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernel / "kernel.json").write_text(
        f'{{"argv": {command}, "display_name": "Python 3", "language": "python"}}', encoding="utf-8"
    )
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")  # nobody's paths are kept
    nbclient.NotebookClient(notebook, timeout=PATIENCE, kernel_name="python3").execute(cwd=str(tmp_path))
    cells = {cell.id: cell for cell in notebook.cells}
    assert "Pipeline cards" in shown(cells["cell-4"]) and "Totals" in shown(cells["cell-4"])
    ran = shown(cells["cell-6"])
    assert re.search(r'<progress value="2\.000" max="2"></progress> cards: 2 of 2 batches', ran)
    assert "<caption>cards: batch 1</caption>" in ran
    assert shown(cells["cell-7"], "text/plain") == "[('ann', 3.5), ('ann', 23.5), ('bob', 8.25)]"
    assert "savepoint" in shown(cells["cell-9"]) and "<td>shops</td>" in shown(cells["cell-9"])
    state = shown(cells["cell-10"])
    assert "&lt;b&gt;books&lt;/b&gt;" in state and "<b>" not in state
