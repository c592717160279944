"""Packages that only some uses of hcilib need, and the extra of pyproject.toml that installs each."""

from __future__ import annotations

EXTRAS = {
    "drive": "fabric invoke paramiko",
    "desk": "IPython ipykernel jinja2 jupyter_client markupsafe nbconvert nbformat papermill pygments tqdm traitlets",
}


def naming_extra(error: ImportError) -> ImportError:
    """Return the error with the extra that installs its package; another package's error as it is.

    Examples
    --------
    >>> naming_extra(ModuleNotFoundError("No module named 'fabric'", name="fabric"))
    ImportError("The package fabric is missing. Install it with: pip install 'hcilib[drive]'")
    """
    package = (error.name or "").split(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages.split():
            return ImportError(f"The package {package} is missing. Install it with: pip install 'hcilib[{extra}]'")
    return error
