"""What the one who started a campaign sees of it: bars for campaign, block and step, each result beside the last,
failures in red."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from tqdm.auto import tqdm

from hcilib.model.plan import Step

TICK_S = 0.5
_RED, _PLAIN = "\033[31m", "\033[0m"


class Bars(contextlib.AbstractContextManager["Bars"]):
    """Three bars in seconds of measuring, so that the time left can be told. Not shown, it does nothing.

    Parameters
    ----------
    left : the planned steps that are not done; more may come on the way
    seconds : how long a step is likely to take
    """

    def __init__(self, name: str, left: Sequence[Step], seconds: Callable[[Step], float], shown: bool):
        self._seconds, self._shown = seconds, shown
        self._block: int | None = None
        self._left = {block: sum(seconds(s) for s in left if s.block == block) for block in {s.block for s in left}}
        self._blocks = max(self._left, default=0)
        self._campaign = self._bar(name, sum(self._left.values()), 0)
        self._of_block = self._bar("", 0, 1)

    def __exit__(self, error: type[BaseException] | None, *_) -> None:
        for bar in (self._of_block, self._campaign):
            if error is None:
                _fill(bar)
            bar.close()

    @contextlib.contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """While a step is done its own bar runs; then the other two go on by what was planned for it."""
        seconds = self._seconds(step)
        self._enter_block(step)
        with self._bar(f"{step.kind} {step.cell.name}", seconds, 2, leave=False) as bar:

            def tick() -> None:  # waits just before its end for the step, which may take longer than planned
                bar.update(max(0.0, min(TICK_S, 0.99 * seconds - bar.n)))
                bar.refresh()  # also of one that waits: whoever looks sees that it lives

            with _ticking(tick):
                yield
            _fill(bar)
        for done in (self._of_block, self._campaign):
            done.total = max(done.total, round(done.n + seconds, 1))  # steps may be added on the way
            done.update(round(seconds, 1))

    def result(self, sentence: str) -> None:
        """Show the last result, or what is waited for, beside the campaign's bar."""
        self._campaign.set_postfix_str(sentence, refresh=True)

    def say(self, sentence: str, *, failed: bool = False) -> None:
        """A line above the bars; a failure in red, and always."""
        if failed or self._shown:
            tqdm.write(red(sentence) if failed else sentence)

    def _enter_block(self, step: Step) -> None:
        if step.block == self._block:
            return
        self._block = step.block
        self._of_block.reset(total=round(max(self._left.get(step.block, 0.0), self._seconds(step)), 1))
        name = f"round {step.block} of {max(self._blocks, step.block)}" if step.block else "preparation"
        self._of_block.set_description_str(name)

    def _bar(self, name: str, seconds: float, position: int, leave: bool = True) -> tqdm:
        form = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} s, {remaining} left {postfix}"
        return tqdm(
            total=round(seconds, 1), desc=name, position=position, leave=leave, bar_format=form, disable=not self._shown
        )


@contextlib.contextmanager
def phase(name: str, shown: bool) -> Iterator[None]:
    """What prepares a campaign and cannot tell how far it is: its name at once, and how long it has taken, while it
    lasts."""
    with tqdm(desc=name, bar_format="{desc}: {elapsed}", leave=False, disable=not shown) as bar, _ticking(bar.refresh):
        yield


@contextlib.contextmanager
def _ticking(tick: Callable[[], object]) -> Iterator[None]:
    """Tick every `TICK_S` while the block runs."""
    stop = threading.Event()

    def ticks() -> None:
        while not stop.wait(TICK_S):
            tick()

    thread = threading.Thread(target=ticks, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _fill(bar: tqdm) -> None:
    """To its end: in a notebook a bar that is closed short of it turns red, which is for failures."""
    bar.update(max(0.0, bar.total - bar.n))


def red(text: str) -> str:
    """In red where it is seen by eyes, a terminal or a notebook; plain where it goes to a file."""
    seen = sys.stdout.isatty() or type(sys.stdout).__module__.startswith("ipykernel")
    return f"{_RED}{text}{_PLAIN}" if seen else text
