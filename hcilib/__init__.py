"""hcilib: drive hosts, run fio on a fleet of VMs, read what came back, and say whether a difference is real.

The names in ``__init__.pyi`` are the whole public surface (``import hcilib as hci``). Rooms load on first use, so that
``import hcilib`` costs milliseconds and the analysis works where fabric is not installed.
"""

from __future__ import annotations

import sys
from importlib import import_module

import lazy_loader

from hcilib.model.extras import naming_extra

__version__ = "0.2.0"

_named, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str):
    """Load the room that a public name of `__init__.pyi` lives in; of a package that is missing, say how to get it."""
    try:
        return _named(name)
    except ModuleNotFoundError as error:
        raise naming_extra(error) from None


def in_notebook() -> None:
    """Where IPython runs already, as in a notebook, the library's errors are readable first
    (hcilib.show.errors)."""
    shell = sys.modules["IPython"].get_ipython() if sys.modules.get("IPython") else None
    if shell is not None:
        import_module("hcilib.show.errors").explain_errors(shell)
        whole = ("display.max_rows", 400, "display.max_colwidth", None, "display.max_columns", 50, "display.width", 200)
        import_module("pandas").set_option(*whole)  # a cut table is no evidence
        if "seaborn" in sys.modules:  # its figures then have the house style
            import_module("hcilib.show.plots").theme()


in_notebook()
