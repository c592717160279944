"""The README's commands exist and its names are real; what `make lab` and `make test` do is tested where they live."""

import doctest
import re
import runpy
import subprocess
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

import hcilib as hci
from hcilib.model.patterns import Pattern

ROOT = Path(__file__).resolve().parents[1]
FRONT = (ROOT / "README.md").read_text()
PAGES = ("GUIDE", "EXTEND")
README = FRONT + "".join((ROOT / f"docs/{page}.md").read_text() for page in PAGES)
"""The front page, and the pages for users."""
TARGETS = sorted(set(re.findall(r"\bmake ([a-z][a-z-]+)\b", re.sub(r"and make\.|make again", "", README))))


def test_the_door_of_files_opens_as_it_says():
    """Its lines are executed, its answer is the library's."""
    tried = doctest.DocTestParser().get_doctest(FRONT, {}, "README", "README.md", 0)
    found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(tried)
    assert found.attempted >= 4
    assert found.failed == 0


@pytest.mark.needs("make")
def test_every_make_command_is_a_target():
    """make names each that is none."""
    done = subprocess.run(["make", "--dry-run", "-k", *TARGETS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.needs("import duckdb")
def test_another_engine_asks_a_table_as_it_says():
    import duckdb

    hosts = hci.read_hosts("data/samples/lab-single")
    expected = hosts.query("kind == 'measure'").groupby("iodepth")["iops"].mean()
    [query] = re.findall(r'duckdb\.sql\("(.+?)"\)', README)
    answer = duckdb.sql(query).df().set_index("iodepth")["iops"]
    assert answer.sort_index().round(6).tolist() == expected.sort_index().round(6).tolist()


def test_what_it_names_is_there():
    """Notebooks with their questions, calls, schemes, patterns, folders and files."""
    named = dict(re.findall(r"^\| (\d\d_\w+) \| (.+\?) \|$", README, re.M))
    titles = {n.stem: n.read_text() for n in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert set(named) == set(titles)
    assert all(f"# {question}" in titles[name] for name, question in named.items())
    assert all(hasattr(hci, name) for name in re.findall(r"hci\.(\w+)\(", README))
    schemes = re.findall(r'"((?:Mirror|Raid\d|ErasureCode|Tiers)\(\d[^"]*)"', README)
    assert [repr(hci.parse_scheme(text)) for text in schemes] == schemes != []
    patterns = re.findall(r"`(\d+[km]-[a-z]+[^`]*)`", README)
    assert [Pattern.parse(name).name for name in patterns] == patterns != []
    paths = re.findall(r"`((?:params|notebooks|hcilib|data|scratch)/[\w./-]*)`", README.replace("<", "`<"))
    assert [path for path in paths if not (ROOT / path).exists() and "runs" not in path] == []


def test_the_comparison_it_offers_for_a_start_can_be_made():
    given = dict(re.findall(r'`(baseline|challenger) = "([^"]+)"`', README))
    sources = re.findall(r'"(data/samples/lab-[\w-]+)"', README)
    systems = set(hci.read_results([ROOT / source for source in sources])["system"])
    assert systems == set(given.values())


def test_the_picture_shows_proven_findings_with_the_numbers_of_its_runs_and_its_caption_explains_them():
    """They are in the description that the picture carries; `make picture` draws it at twice the size."""
    with Image.open(ROOT / "readme.png") as picture:
        shown, width = pd.read_json(StringIO(picture.info["Description"])), picture.width
    drawing = runpy.run_path(str(ROOT / ".ci" / "picture"))
    winners, results = drawing["leaders"]()
    drawn = winners[drawing["COLUMNS"]].astype({"pattern": str})
    pd.testing.assert_frame_equal(shown, drawn, check_dtype=False, rtol=1e-5)
    leads = shown[shown["state"] == "leads"]
    assert leads["n"].min() >= 3
    assert width >= 2 * 1100
    caption = FRONT.split("](readme.png)")[1].split("\n\n")[1]
    assert "the three leads" in caption
    assert len(leads) == 3
    assert "Welch" in caption
    assert not hci.compare(results, "box-raid5")["paired"].any()


def test_its_count_of_statements_is_that_of_the_audit():
    found = hci.check_claims(hci.published(), hci.published_claims(), hci.published_facts())["verdict"].value_counts()
    paragraph = next(text for text in FRONT.split("\n\n") if text.startswith("**Five published articles"))
    printed = [int(number) for number in re.findall(r"\b\d+\b(?! say)|\d+(?= say)", paragraph)]
    verdicts = ("holds", "rounding", "off", "opposite", "not checkable")
    assert printed == [found.sum(), *(found[verdict] for verdict in verdicts)]
    assert len(found) == len(verdicts)


def test_its_answer_of_the_lab_is_that_of_the_committed_runs():
    """`make lab` measures anew, so other kinds of I/O may move within their margin."""
    lab = hci.read_results([ROOT / "data/samples/lab-single", ROOT / "data/samples/lab-mirror"])
    lab = lab.query("iodepth == 8")
    found, mean = hci.compare(lab, "lab-single"), hci.overall(lab, "lab-single")
    ratios = found.set_index("pattern")["ratio"]
    [answer] = re.findall(r"^> (Against .+)$", FRONT, re.M)
    numbers = re.findall(r"([\d.]+)(?= %| to)", answer.replace("95 % interval", ""))
    loss, high, low, writes, foretold = map(float, numbers)
    mean = 100 * (1 - mean[["ratio", "ratio_hi", "ratio_lo"]].iloc[0].astype(float))
    assert [loss, high, low] == [round(mean["ratio"]), *mean[["ratio_hi", "ratio_lo"]].round(1)]
    assert round(100 * (1 - ratios["4k-randwrite"])) == writes
    assert found["verdict"].tolist() == ["same", "same", "lower"]
    speeds = hci.read_set_speeds([ROOT / "data/samples/lab-single", ROOT / "data/samples/lab-mirror"])
    known = hci.predicted(lab, speeds, hci.load_systems(), "lab-single").query("system == 'lab-mirror'")
    expected = 100 * (1 - known.set_index("pattern")["ratio"])
    assert [writes, foretold] == pytest.approx([expected["4k-randwrite"]] * 2, abs=0.05)
    assert expected.drop("4k-randwrite").tolist() == pytest.approx([0, 0], abs=0.05)
