"""A study: scenarios that tell one story, who measured it and on what. Validated YAML under params/studies."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from hcilib.model import yaml_models as form
from hcilib.model.places import at_home
from hcilib.model.yaml_models import Model, TestbedError, load

Hardware = Literal["real", "emulated", "simulated", "unstated"]


class Study(Model):
    """One block of the report's index and one page of its own.

    Attributes
    ----------
    short : the first word of titles
    title : until a scenario of the study has an answer, whose first sentence is the title then
    under_test : the systems, in a few words
    measured_by, date : the author or lab, and when; "" where a source does not say
    hardware : real, emulated (stand-ins of known speed), simulated, or unstated
    runs : of each test, at least; 0 where nothing was measured
    repeats : the same in words, with what else matters to trust it
    article : key of a source in data/published/sources.csv, where the study is a published article
    scenarios : names of params files without their ending
    """

    short: form.Line
    title: form.Line
    under_test: form.Line
    measured_by: form.Line = ""
    date: form.Line = ""
    hardware: Hardware = "unstated"
    runs: int = Field(default=0, ge=0)
    repeats: form.Line = ""
    article: form.Name | None = None
    scenarios: tuple[form.Name, ...]


def load_studies(folder: str | Path) -> dict[str, Study]:
    """Return key -> study of every YAML file of a folder; none where there is no such folder.

    Raises
    ------
    TestbedError : a file that is no study, or a scenario that two studies name; the message names file and field
    """
    studies = {file.stem: load(file, Study) for file in sorted(at_home(folder).glob("*.yaml"))}
    owner: dict[str, str] = {}
    for key, study in studies.items():
        for name in study.scenarios:
            if name in owner:
                where = f"{Path(folder) / key}.yaml: field scenarios: {name}"
                raise TestbedError(f"{where} belongs to {owner[name]}.yaml already")
            owner[name] = key
    return studies
