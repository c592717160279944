"""A notebook's cells, run in this process with parameters of one's own."""

import io
from contextlib import redirect_stdout
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
from seaborn.axisgrid import Grid

import hcilib as hci
from hcilib.show.site.scenarios import cells_of


def executed(notebook: str, **params: Any) -> tuple[dict[str, Any], str, str]:
    """Return the names that the cells leave behind, what the answer cell prints, and what all print.

    Every figure is drawn. It is not laid out, twice each as seaborn does it: nobody looks at it.
    """
    names, answer, every = {"display": lambda *shown: None}, "", ""
    mpl.use("Agg")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(hci.ROOT)
        patch.setattr(Grid, "tight_layout", lambda grid, **_: grid)
        for cell in (cell for cell in cells_of(hci.ROOT / f"notebooks/{notebook}.ipynb") if cell.cell_type == "code"):
            with redirect_stdout(io.StringIO()) as printed:
                exec(compile(cell.source, notebook, "exec"), names)
            tags = cell.metadata.get("tags", [])
            names |= params if "parameters" in tags else {}
            answer += printed.getvalue() if "answer" in tags else ""
            every += printed.getvalue()
            plt.close("all")
    return names, answer, every
