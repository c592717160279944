"""What happens to a campaign while it runs, and what its run directory says of it afterwards."""

import json
import threading
from pathlib import Path

from hcilib.read.run.journal import events_of


class Meanwhile(threading.Thread):
    """What happens to a campaign while it runs; what goes wrong in it is raised at the end."""

    def __init__(self, action):
        super().__init__(daemon=True)
        self._action, self._error = action, None

    def run(self):
        try:
            self._action()
        except BaseException as error:
            self._error = error

    def __enter__(self):
        self.start()

    def __exit__(self, raised, *_):
        self.join(timeout=60)
        assert raised or not self._error, self._error


def events(run_dir: Path, kind: str) -> list[dict]:
    return [event for event in events_of(run_dir) if event["event"] == kind]


def attempts(run_dir: Path) -> list[dict]:
    """The failed attempts, as they are kept."""
    return [json.loads(f.read_text()) for f in sorted(run_dir.glob("failed/*/step.json"))]


def lost(run_dir: Path) -> list[str]:
    """The first problem of each failed attempt."""
    return [attempt["problems"][0] for attempt in attempts(run_dir)]
