#!/usr/bin/env python3
"""Store figures in 256 colours, PNG files and outputs of notebooks: they look the same in a third of the bytes.

python .ci/palette.py notebooks/*.ipynb readme.png
"""

import base64
import io
import sys
from pathlib import Path

import nbformat
from PIL import Image
from PIL.PngImagePlugin import PngInfo


def in_palette(png: bytes) -> bytes:
    """Return the same picture with its 256 colours in a palette; one that has a palette stays as it is."""
    picture = Image.open(io.BytesIO(png))
    if picture.mode == "P":
        return png
    texts = PngInfo()
    for name, text in getattr(picture, "text", {}).items():
        texts.add_text(name, text)
    colours = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    small = io.BytesIO()
    colours.save(small, "png", optimize=True, pnginfo=texts, dpi=picture.info.get("dpi"))
    return small.getvalue()


def shrink(notebook: Path) -> None:
    """Store every figure of a notebook in a palette."""
    content = nbformat.read(notebook, nbformat.NO_CONVERT)
    for cell in content.cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                png = in_palette(base64.b64decode(data["image/png"]))
                data["image/png"] = base64.encodebytes(png).decode().replace("\n", "")
    nbformat.write(content, notebook)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        if file.suffix == ".ipynb":
            shrink(file)
        else:
            file.write_bytes(in_palette(file.read_bytes()))
