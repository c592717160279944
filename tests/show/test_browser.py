"""The analyst's desk in a real browser: JupyterLab over a copy of the repository, and the report's pages under axe."""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from hcilib.show.site.build import build
from hcilib.show.site.execute import describe, provenance
from hcilib.show.site.pages import write_evidence, write_pages
from hcilib.show.site.scenarios import Scenario, find_scenarios
from tests.test_notebooks import left_behind

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright = pytest.importorskip("playwright.sync_api", reason="this machine lacks: import playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="this machine lacks: axe-playwright-python")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("chromium or chromium-browser"),
]
# Without the background flags Chromium asks for its maker's hosts at every start; nothing here needs a network.
FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
LAPTOP = {"width": 1366, "height": 768}
SETTINGS = {  # of JupyterLab: no question at the start, the theme follows the browser's, every cell is in the page
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/apputils-extension/themes": {"adaptive-theme": True},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}
LIVE = {
    "testbed": "params/testbeds/lab.yaml", "system": "params/systems/lab-single.yaml", "run_dir": "data/runs/browser",
    "article": None, "drive": None, "patterns": ["4k-randread"],
    "sweep": {"iodepth": [1, 2], "vms": 2, "repeats": 1, "read_runtime_s": 1.0, "write_runtime_s": 1.0,
              "span_bytes": 16777216, "canary": False},
}  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as started:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to sandbox root
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS + sandbox)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def window(chromium):
    """One browser window for JupyterLab, so that its scripts are read once."""
    return chromium.new_context(viewport=LAPTOP, color_scheme="light")


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A copy of the repository: JupyterLab saves what it runs, and never into the checkout."""
    copy = tmp_path_factory.mktemp("desk")
    for folder in ("hcilib", "notebooks", "params", "data/published", "data/samples"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=left_behind)
    book = nbformat.read(copy / "notebooks/03_sweep.ipynb", 4)
    parameters = next(c for c in book.cells if "parameters" in c.metadata.get("tags", []))
    parameters.source += "".join(f"\n{name} = {value!r}" for name, value in LIVE.items())
    first_table = next(i for i, c in enumerate(book.cells) if c.source.startswith("hci.text("))
    book.cells = book.cells[: first_table + 1]  # the rest is run by the test of the whole notebook
    nbformat.write(book, copy / "notebooks/live.ipynb")
    return copy


@pytest.fixture(scope="module")
def lab_url(desk):
    """JupyterLab on a free loopback port, with settings and state of its own; ended with every kernel it started."""
    own = {f"JUPYTER_{kind}_DIR": str(desk / ".jupyter" / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(desk / ".jupyter/lab"), "IPYTHONDIR": str(desk / ".ipython")}
    own |= {"JUPYTERLAB_WORKSPACES_DIR": str(desk / ".jupyter/workspaces"), "JUPYTER_TOKEN": secrets.token_hex()}
    for name, values in SETTINGS.items():
        path = desk / ".jupyter/lab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--ServerApp.root_dir=.",
        "--LabApp.default_url=/lab/tree/notebooks",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        "--port=0",
    ]
    log = desk / "jupyter.log"
    with log.open("w") as output:
        server = subprocess.Popen(command, cwd=desk, env=os.environ | own | {"PYTHONPATH": str(desk)}, stdout=output,
                                  stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        yield _address(server, desk / ".jupyter/runtime", log)
    finally:
        _end(server)


def _address(server: subprocess.Popen, runtime: Path, log: Path) -> str:
    for _ in range(1200):
        for path in runtime.glob("jpserver-*.json"):
            if (text := path.read_text()).strip():
                return f"{json.loads(text)['url']}lab/tree/notebooks/{{}}?reset&token={json.loads(text)['token']}"
        assert server.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start within 120 s:\n{log.read_text()}")


def _end(server: subprocess.Popen) -> None:
    """SIGTERM lets the server end its kernels, and a kernel its lab; what is left of its session after that is
    killed."""
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


class Desk:
    """One notebook open in JupyterLab, worked as a person does: by menu and by looking."""

    def __init__(self, window, url: str, name: str):
        self.page = window.new_page()
        self.page.goto(url.format(f"{name}.ipynb"))
        self.idle()

    def idle(self, seconds: float = 180) -> None:
        """Menus work only when the status bar says that the kernel is there and waits."""
        status = self.page.locator("#jp-main-statusbar").get_by_text(re.compile(r"Python 3 \(ipykernel\) \| Idle"))
        status.first.wait_for(timeout=1000 * seconds)

    def run_all(self) -> None:
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile("^Run$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile("^Run All Cells$")).click()

    def done(self, seconds: float = 180) -> None:
        """The last code cell has its number, none waits for one."""
        self.page.wait_for_function(
            """() => { const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].map(p => p.textContent);
                return prompts.length && !prompts.some(p => p.includes('*')) && /[0-9]/.test(prompts.at(-1)); }""",  # noqa: E501
            timeout=1000 * seconds,
        )
        self.idle(seconds)

    def errors(self) -> int:
        return self.page.locator("[data-mime-type='application/vnd.jupyter.error']").count()


FIGURE, TABLE = ".jp-OutputArea-output img", ".jp-OutputArea-output table.dataframe"


@pytest.mark.parametrize(
    ("name", "figures", "tables"),
    [
        ("template", 2, 3),
        pytest.param("03_sweep", 2, 4, marks=pytest.mark.deep),
        pytest.param("04_compare", 3, 5, marks=pytest.mark.deep),
    ],
)
def test_a_notebook_runs_and_shows_its_figures_and_tables(window, lab_url, name, figures, tables):
    work = Desk(window, lab_url, name)
    assert work.page.locator(FIGURE).count() >= figures  # committed with its pictures
    work.page.evaluate("document.querySelectorAll('.jp-OutputArea-output img').forEach(i => i.dataset.old = 1)")
    work.run_all()
    work.done()
    assert work.errors() == 0
    assert work.page.locator(FIGURE + ":not([data-old])").count() >= figures  # drawn now
    assert work.page.locator(TABLE).count() >= tables
    too_wide = "tables => tables.filter(t => t.offsetWidth > t.closest('.jp-OutputArea-output').clientWidth).length"
    assert work.page.locator(TABLE).evaluate_all(too_wide) == 0  # on a laptop, with the file browser open
    work.page.close()


@pytest.mark.deep
@pytest.mark.lab
def test_a_live_campaign_shows_its_progress_and_then_its_numbers(window, lab_url, desk):
    work = Desk(window, lab_url, "live")
    work.run_all()
    # A bar that has begun while its cell runs. The status bar cannot tell: with widgets it says Idle all along.
    work.page.wait_for_function(
        """() => { const cell = document.querySelector('.jp-CodeCell:has(.widget-hprogress)');
            return cell && /[1-9][0-9]?%/.test(cell.textContent)
                && cell.querySelector('.jp-InputArea-prompt').textContent.includes('*'); }""",
        timeout=180_000,
    )
    work.done()
    assert work.errors() == 0
    assert work.page.locator(f"{TABLE} th", has_text="4k-randread").count() >= 1
    assert len(list((desk / "data/runs/browser/steps").glob("measure-*"))) == 2
    work.page.close()


def written(scenario: Scenario, out: Path, error: str = "") -> dict:
    """Write the page of a scenario as its notebook is committed, and return its result."""
    book, folder = nbformat.read(scenario.notebook, 4), out / scenario.name
    made = {"made": provenance(scenario, "committed", 0.0), "digest": "0", "files": [], "main": ""}
    result = describe(scenario, book, error, ROOT) | made
    folder.mkdir()
    nbformat.write(book, folder / f"{scenario.name}.ipynb")
    write_evidence(book, result, folder)
    return result


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A page of each notebook, one of a failure, and the pages that lead to them."""
    out = tmp_path_factory.mktemp("site")
    scenarios = {s.notebook.stem: s for s in find_scenarios(ROOT / "params", ROOT / "notebooks")}
    errors = {"16_history": "ValueError: no <file>"}
    write_pages([written(scenario, out, errors.get(name, "")) for name, scenario in scenarios.items()], out, ROOT)
    return out


SWEPT = "04_compare.proxmox/04_compare.proxmox.html"


@pytest.mark.deep
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_with_its_code_has_a_serious_accessibility_finding(chromium, site, scheme):
    rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}  # all else is the same in the dark
    pages = sorted(site.glob("**/*.html"))
    assert len(pages) > len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    assert [finding for page in pages for finding in serious(chromium, page, scheme, rules)] == []


def serious(chromium, path: Path, scheme: str, rules: dict) -> list[tuple[str, str, str]]:
    """Return what axe calls serious or critical on a page: the page, the rule and where it is broken first."""
    page = opened(chromium, path, color_scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.evaluate("document.querySelectorAll('tbody tr:nth-child(n+7)').forEach(row => row.remove())")  # alike
    page.evaluate("document.querySelector('#code')?.click()")
    found = axe.Axe().run(page, options={"resultTypes": ["violations"]} | rules).response["violations"]
    page.context.close()
    return [(path.name, v["id"], v["nodes"][0]["html"]) for v in found if v["impact"] in ("serious", "critical")]


def opened(chromium, path: Path, **context) -> playwright.Page:
    page = chromium.new_context(**{"viewport": LAPTOP, "offline": True, **context}).new_page()
    page.goto(f"file://{path}")
    return page


@pytest.mark.deep
def test_a_page_works_from_a_file_without_network_script_and_mouse_and_prints(chromium, site):
    page, asked = chromium.new_context(viewport=LAPTOP, offline=True, java_script_enabled=False).new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"file://{site / SWEPT}")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert not page.locator(".input").first.is_visible()
    page.check("#code")
    assert page.locator(".input").first.is_visible()
    assert re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    page.goto(f"file://{site / SWEPT}")
    page.emulate_media(media="screen")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/index.html")
    page.context.close()


@pytest.mark.deep
def test_the_index_shows_five_answers_and_a_figure_of_each_comparison_within_four_screens(chromium, tmp_path):
    asked = [ROOT / f"params/{name}.yaml" for name in ("04_compare.proxmox", "04_compare.box", "13_failure.box-drbd")]
    page = opened(chromium, build(asked, tmp_path, 1, ROOT)[0], viewport={"width": 1280, "height": 800})
    for study in ("proxmox", "box"):
        block = page.locator("section", has=page.locator(f'h2 a[href="study.{study}.html"]'))
        assert block.locator("tr").count() == 5
        assert all(block.locator("td").all_inner_texts())
        assert block.locator("img").evaluate("i => i.complete && i.naturalWidth > 500")
    assert page.evaluate("document.documentElement.scrollHeight") <= 4 * 800
    page.context.close()


@pytest.mark.deep
def test_no_page_is_wider_than_its_window_or_above_700_kilobytes(chromium, site):
    for width in (1280, 390):
        for path in sorted(site.glob("**/*.html")):
            page = opened(chromium, path, viewport={"width": width, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path.name
            tops = page.evaluate("[...document.querySelector('main').children].map(e => e.getBoundingClientRect().top)")
            assert tops == sorted(tops), path.name
            assert path.stat().st_size <= 700_000, path.name
            page.context.close()


def test_dark_is_as_the_screen_is(chromium, tmp_path):
    written(*find_scenarios(ROOT / "params/04_compare.proxmox.yaml", ROOT / "notebooks"), tmp_path)
    papers = []
    for scheme in ("dark", "light"):
        page = opened(chromium, tmp_path / SWEPT, color_scheme=scheme)
        papers.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert (page.locator("img").first.evaluate("i => getComputedStyle(i).filter") != "none") == (scheme == "dark")
        page.context.close()
    assert papers == ["rgb(23, 25, 28)", "rgb(255, 255, 255)"]
