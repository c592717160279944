"""How far a number walks: the files through whose hands it goes, and the forms it takes (docs/DESIGN.md section 3).

Seen in a real call: what every function of hcilib is given and gives is searched for the number itself.
"""

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import hcilib as hci
from hcilib.model.places import shipped

HOME = Path(hci.__file__).parent
SAMPLE = shipped("data/samples/box/box-drive")
DESIGN = (hci.ROOT / "docs" / "DESIGN.md").read_text(encoding="utf-8")
MODEL = {
    "model/archives.py",
    "model/caveats.py",
    "model/compressed.py",
    "model/engine.py",
    "model/fio_buckets.py",
    "model/metrics.py",
    "model/places.py",
    "model/plan.py",
    "say/caveats.py",
}
"""What everybody may know: words, units, paths and the bytes of an ordinary file, no step of a walk."""


def alike(values, number: float):
    return np.abs(values - number) <= 1e-9 * number  # a mean of logs gives one run back but for its last digits


def holds(value, number: float, texts: tuple[str, str], depth: int = 6) -> str:
    """The form in which a value holds the number, by `texts` where fio or a table wrote it; empty where it does not."""
    match value:
        case bytes() | bytearray():
            return "fio's JSON" if texts[0].encode() in value else ""
        case str():
            return "text" if texts[1] in value else ""
        case bool() | int() | None:
            return ""
        case float():
            return "a number" if alike(value, number) else ""
        case np.ndarray() if value.dtype.kind == "f":
            return "columns" if alike(value, number).any() else ""
        case pd.Series():
            return (
                "a table"
                if pd.api.types.is_float_dtype(value) and alike(value.to_numpy(float, na_value=np.nan), number).any()
                else ""
            )
        case pd.DataFrame():
            return next(filter(None, (holds(value.iloc[:, i], number, texts) for i in range(value.shape[1]))), "")
        case pa.ChunkedArray() | pa.Array():
            floats = pa.types.is_floating(value.type)
            return "columns" if floats and alike(value.to_pandas().to_numpy(float), number).any() else ""
        case pa.Table():
            parts = value.columns
        case dict():
            parts = list(value.values())
        case list() | tuple():
            parts = list(value)
        case _ if hasattr(value, "__struct_fields__"):
            parts = [getattr(value, name) for name in value.__struct_fields__]
        case _:
            parts = list(vars(value).values()) if type(value).__module__.startswith("hcilib") and depth else []
    found = next(filter(None, (holds(part, number, texts, depth - 1) for part in parts)), "") if depth else ""
    return "decoded" if found == "a number" else found


def walked(call, number: float, texts: tuple[str, str]) -> tuple[list[str], list[str]]:
    """The files through whose hands the number goes, and the forms it takes, in their order."""
    files, forms = {}, {}

    def look(frame, event, given):
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(str(HOME)):
            return
        sys.setprofile(None)
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        for value in [given] if event == "return" else [frame.f_locals.get(name) for name in arguments]:
            if form := holds(value, number, texts):
                files[str(Path(code.co_filename).relative_to(HOME))] = None
                forms[form] = None
        sys.setprofile(look)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [name for name in files if name not in MODEL], [form for form in forms if form != "a number"]


def limit(what: str) -> int:
    """As DESIGN section 3 says it: ``| <what> | 15 |``."""
    return int(re.search(rf"^\| {re.escape(what)} \| (\d+) \|", DESIGN, re.M)[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of one VM, so that what fio printed is the run's own number; nothing of it was read before."""
    to = tmp_path_factory.mktemp("runs") / "box-drive"
    shutil.copytree(SAMPLE, to)
    return to


def test_an_iops_from_fios_json_to_a_table_and_a_sentence(folder):
    first = hci.read_results(SAMPLE).nlargest(1, "iops").iloc[0]
    number, texts = float(first["iops"]), (f"{first['iops']:f}", hci.metric("iops").show(first["iops"]))

    def page():
        results = hci.read_results(folder)
        one = results[results["run_id"].eq(first["run_id"]) & results["block"].eq(first["block"])]
        both = pd.concat([one, one.assign(system="other")])
        hci.table(hci.summarize(both))._repr_html_()
        hci.headline(hci.compare(both, "other"))

    files, forms = walked(page, number, texts)
    print(len(files), *files, *forms, sep="\n")
    assert len(files) <= limit("files that an `iops` crosses from fio's JSON to a table and a sentence")
    assert len(forms) - 1 <= limit("changes of its form")


def files_run(call) -> set[str]:
    """The files of hcilib in which a call runs a function, but for those of MODEL."""
    call()  # so that nothing is imported while it is watched
    ran = set()

    def look(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(HOME)):
            ran.add(str(Path(frame.f_code.co_filename).relative_to(HOME)))

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return ran - MODEL - {"__init__.py"}


def test_compare_is_read_in_three_files():
    results = hci.published().query("source == 'proxmox-2node-hci' and pattern == '1m-read' and vms > 1")
    ran = files_run(lambda: hci.compare(results, "starwind-rdma-pve"))
    assert ran == {f"analyse/compare/{name}.py" for name in ("compare", "cells", "contrast")}
    assert len(ran) == limit("files that `compare` runs in")


def test_a_log_line_to_a_percentile(tmp_path):
    (tmp_path / "job_clat.1.log").write_text("".join(f"{ms}, {1000 + ms}, 0, 4096, 0, 0\n" for ms in range(2000)))
    ran = files_run(lambda: hci.percentiles(hci.read_rollup(tmp_path), by=[]))
    print(*sorted(ran), sep="\n")
    assert len(ran) <= limit("files that a log's line runs through to a percentile")
