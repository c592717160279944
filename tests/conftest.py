"""Share what tests of many files need, choose who runs which file, and repeat the properties.

`make test` draws the same examples every time, so that a reviewer sees what CI saw; `make deep` and bench/fuzz look for
others.
"""

import gc
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.needs import reason

# Tests send Ctrl-C to themselves and to children, which would ignore it where the shell started pytest in the
# background.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What test files import lives until the end: searching it again and again for garbage took 6 % of the time.
gc.disable()


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.enable()


# No example is timed: a busy machine is no defect. A folder of a test's own may hold the files of all its examples.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("repeatable", untimed, derandomize=True, max_examples=15)
settings.register_profile("deep", untimed, max_examples=100)
settings.load_profile("repeatable")


# Files that look at a clock: one worker takes them all, one after another.
CLOCK = re.compile(
    r"tests/(drive/test_(counters|demand_truth|dial|events|faults|hosts|injections|launch|lease|policy|processes"
    r"|slow_and_hung|supervisor)|read/test_fio_interim)\.py"
)
# The longest files: begun early, as the last to begin would be waited for.
LONG = re.compile(
    r"tests/(show/test_(browser|report|site)|test_(notebooks|edits|optional_measures|wheel)"
    r"|drive/test_(discover|fleets|interleaved|known_content|outages|outside|stopping))\.py"
)
# One worker starts one Ceph cluster for all of them.
CEPH = re.compile(r"tests/drive/test_ceph\.py")


def pytest_collection_modifyitems(items):
    """Sort by turn: the clock's, the longest, those on virtual nodes, all others. And skip what cannot run here.

    Virtual nodes keep several processors busy. They begin when the clock's worker is done. Within a turn files follow
    by their names, whatever their room: those that wait for hosts then run beside those that compute.
    """

    def turn(item) -> tuple[int, str]:
        nodes = item.get_closest_marker("box") or "ceph_cluster" in getattr(item, "fixturenames", ())
        order = 0 if CLOCK.match(item.nodeid) else 1 if LONG.match(item.nodeid) else 2 if nodes else 3
        return order, item.path.name

    items.sort(key=turn)
    for item in items:
        if said := reason(*(name for mark in item.iter_markers("needs") for name in mark.args)):
            item.add_marker(pytest.mark.skip(reason=said))


def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadFileScheduling

    class OneClock(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "clock" if CLOCK.match(file) else "ceph" if CEPH.match(file) else file

    return OneClock(config, log)


@pytest.fixture
def calls() -> Callable[..., tuple[Any, int]]:
    """What a call gives, and the calls of functions it took: work that no other process makes more of, unlike time.

    C's functions count as the caller's; `within` names a part of the paths of the files that count.
    """

    def counted(work: Callable[[], Any], within: str = "") -> tuple[Any, int]:
        number = 0

        def count(frame, event, _):
            nonlocal number
            number += event in ("call", "c_call") and within in frame.f_code.co_filename

        sys.setprofile(count)
        try:
            return work(), number
        finally:
            sys.setprofile(None)

    return counted
