"""Every verb of `hci`: its options, its exit status, and a mistake's message with file or field and a remedy."""

import re

import pytest

import hcilib as hci
from hcilib.cli import main

LOOSE = str(hci.ROOT / "data/samples/loose-files")
FILES = {
    "empty/.keep": "",
    "table.csv": "a,b\n1,2\n",
    "broken/run1.json": '{"fio version": "fio-3.33", "jobs": [',
    "04_compare.mine.yaml": "metrc: iops\n",
    "04_comparre.mine.yaml": "metric: iops\n",
    "03_sweep.mine.yaml": "patterns: 4k-randread\n",
    "bad/04_compare.mine.yaml": "sources: [data\n",
}
HELP = {
    # a verb, and all of its options
    "": "",
    "init": "",
    "recognise": "--all --names --params --system",
    "report": "--headline --out --workers",
    "lab": "--headline --out --workers",
    "check": "--against --json --junit --metric --size",
    "watch": "",
    "stop": "",
    "discover": "--key --known-hosts --nodes --out --system --windows",
    "fleet": "",
    "fleet up": "--count --disk --disks --key --known-hosts --name --network --out --pool --records --template --user",
    "fleet down": "--records --unasked",
}
ANSWERS = {
    # a command that answers, its exit status, and a text of it
    "a folder of results": (
        f"recognise {LOOSE} --names {{system}}_{{pattern}}_qd{{iodepth}}_r{{rep}}.json",
        0,
        "Runs: 12.",
    ),
    "a folder for an analyst": ("init mine", 0, "Copied: "),
    "months with a loss": (f"check {hci.ROOT}/data/samples/history.csv", 1, "c19"),
}
MISTAKES = {
    # a command, its exit status, and what its message names: file or field, then the remedy
    "no verb": ("", 2, ["verb"]),
    "a misspelt verb": ("recgnise results", 2, ["recgnise", "recognise"]),
    "a missing argument": ("recognise", 2, ["path"]),
    "a folder that is not there": ("recognise nosuch", 1, ["nosuch", "has no nosuch"]),
    "an empty folder of results": ("recognise nothing", 1, ["nothing", "Give the folder"]),
    "a damaged result": ("recognise broken", 0, ["run1.json", "Repeat the run"]),
    "a CSV for a result": ("recognise table.csv", 0, ["table.csv", "Give a folder with results of fio"]),
    "an open brace": (f"recognise {LOOSE} --names {{system}}_{{pattern", 1, ["{pattern", "Write each field"]),
    "a misspelt field": (f"recognise {LOOSE} --names {{sytem}}.json", 1, ["sytem", "did you mean system"]),
    "a pattern that fits no name": (f"recognise {LOOSE} --names {{system}}-{{bs}}.json", 0, ["--names", "any text"]),
    "params in a folder that is not there": (f"recognise {LOOSE} --params no/00_files.a.yaml", 1, ["no", "Create it"]),
    "params of another name": (f"recognise {LOOSE} --params mine.yml", 1, ["mine.yml", "00_files.mine.yaml"]),
    "a misspelt scenario": ("report 04_compar.mine.yaml", 2, ["04_compar.mine.yaml", "did you mean 04_compare?"]),
    "a notebook that is not there": ("report 04_comparre.mine.yaml", 2, ["04_comparre", "did you mean 04_compare?"]),
    "a misspelt parameter": ("report 04_compare.mine.yaml", 2, ["mine.yaml", "metrc", "did you mean metric?"]),
    "a text for a list": ("report 03_sweep.mine.yaml", 2, ["mine.yaml", "patterns", "list"]),
    "a folder without params": ("report nothing", 2, ["nothing", "<notebook>.<case>.yaml"]),
    "a CSV for params": ("report table.csv", 2, ["table.csv", "<notebook>.<case>.yaml"]),
    "no YAML": ("report bad", 2, ["bad/04_compare.mine.yaml", "line 2", "expected"]),
    "a file for the site's folder": (
        f"report {hci.ROOT}/params/04_compare.proxmox.yaml --out table.csv", 2, ["table.csv", "another folder"],
    ),
    "a campaign that is not there": ("watch nosuch", 1, ["nosuch", "data/runs"]),
    "no campaign to stop": ("stop nosuch", 1, ["nosuch", "data/runs"]),
    "a folder without campaigns": ("check empty", 2, ["empty", "Give the folder"]),
    "a loss above everything": ("check empty --size 50", 2, ["--size", "5%"]),
    "a host name that is not known": ("discover nosuch.invalid", 1, ["nosuch.invalid", "~/.ssh/config"]),
    "a host without sshd": ("discover 127.0.0.1:1", 1, ["127.0.0.1", "sshd"]),
    "a fleet that is not there": ("fleet down nosuch", 1, ["nosuch", "fleets with a record"]),
}  # fmt: skip


@pytest.fixture
def hci_of(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command in a folder of mistakes: its exit status, its output, its errors."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "nothing").mkdir()
    monkeypatch.chdir(tmp_path)

    def run(command: str) -> tuple[int, str, str]:
        try:
            code = main(command.split())
        except SystemExit as ended:
            code = ended.code
        return code, *capsys.readouterr()

    return run


@pytest.mark.needs("import fabric", "import papermill")
@pytest.mark.parametrize("verb", HELP)
def test_a_verb_explains_itself_with_all_of_its_options(verb, hci_of):
    code, output, _ = hci_of(f"{verb} --help")
    assert (code, output.startswith("usage: ")) == (0, True)
    assert set(re.findall(r"(?m)^  (?:-[^-]+)?(--[a-z-]+)", output)) == {"--help", *HELP[verb].split()}


@pytest.mark.needs("import fabric", "import papermill")
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_and_its_exit_status(name, hci_of):
    command, status, word = ANSWERS[name]
    code, output, _ = hci_of(command)
    assert (code, word in output) == (status, True), output


@pytest.mark.needs("import fabric", "import papermill")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_remedy(name, hci_of):
    command, status, words = MISTAKES[name]
    code, output, errors = hci_of(command)
    assert code == status, errors
    assert [word for word in words if word not in output + errors] == [], output + errors
    assert "Traceback" not in output + errors
    assert len(errors) < 1200
