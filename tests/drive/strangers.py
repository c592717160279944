"""Another account of this machine, which tries to make a fio server do its bidding: used by the tests and by
bench/chaos.py.

fio's servers know no authentication and `exec_prerun` runs a command: whoever reaches one is the account that started
it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534

# Run as the other account: every TCP listener and every unix socket it can see or is told of, by fio itself, many at
# once.
ATTACK = r"""
import json, os, socket, subprocess, sys
from concurrent.futures import ThreadPoolExecutor
fio, folder = sys.argv[1:]
told = json.load(sys.stdin)  # not in its command line, by which our own clean-up would take it for a fio of ours
os.chdir(folder)
def greets(where):  # an sshd speaks first, a fio server never does
    address, port = where.partition(":")[2].rsplit(",", 1)
    try:
        with socket.create_connection((address, int(port)), timeout=0.2) as sock:
            return sock.recv(4) == b"SSH-"
    except OSError:
        return False
mark = os.path.join(folder, "mark")
with open("job.fio", "w") as job:
    job.write("[x]\nioengine=null\nsize=4k\nrw=read\nexec_prerun=touch %s.$$\n" % mark)
found = []
for file, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
    for line in open(file).read().splitlines()[1:]:
        local, state = line.split()[1], line.split()[3]
        if state != "0A":
            continue
        number, port = local.split(":")
        words = [bytes.fromhex(number[i:i + 8])[::-1] for i in range(0, len(number), 8)]
        kind = "ip" if family == socket.AF_INET else "ip6"
        found.append("%s:%s,%d" % (kind, socket.inet_ntop(family, b"".join(words)), int(port, 16)))
paths = {line.split()[7] for line in open("/proc/net/unix").read().splitlines()[1:] if len(line.split()) > 7}
found = [one for one in found if not greets(one)]
found = ["sock:" + path for path in [*told, *sorted(paths)] if len(path) < 100] + found  # what it was told of before it is gone
def attack(one):
    subprocess.run(["timeout", "-k", "1", "8", fio, "--client=" + one, "job.fio"], stdin=subprocess.DEVNULL,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
with ThreadPoolExecutor(32) as several:  # not more: eight seconds are enough for a fio, not for a hundred at once
    list(several.map(attack, dict.fromkeys(found)))
opened = []
for path in told:  # and by hand: no connection at all
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(path)
            opened.append(path)
        except OSError:
            pass
print(json.dumps({"tried": list(dict.fromkeys(found)), "opened": opened}))
"""  # noqa: E501


@contextmanager
def stranger(fio: str = "fio") -> Iterator[Stranger]:
    """An account that can do what any account can."""
    folder = Path(tempfile.mkdtemp(prefix="stranger-", dir="/tmp"))
    try:
        folder.chmod(0o777)
        yield Stranger(folder, shutil.which(fio) or fio)
    finally:
        shutil.rmtree(folder)


class Stranger:
    """Tries, and tells what came of it."""

    def __init__(self, folder: Path, fio: str):
        self.folder, self.fio = folder, fio

    def tries(self, told: Sequence[Path] = ()) -> dict:
        """`tried`: every listener that fio was pointed at; `opened`: those of `told` that let it connect; `ran`: the
        accounts as which a command of its own was run."""
        python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
        argv = [
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            python,
            "-c",
            ATTACK,
            self.fio,
            str(self.folder),
        ]
        done = subprocess.run(
            argv,
            input=json.dumps([str(path) for path in told]),
            capture_output=True,
            text=True,
            timeout=120,
            env={"PATH": os.environ["PATH"]},
        )
        assert done.returncode == 0, (done.returncode, done.stderr)
        ran = [file.stat().st_uid for file in self.folder.glob("mark.*")]
        for file in self.folder.glob("mark.*"):
            file.unlink()
        return json.loads(done.stdout) | {"ran": ran}


def sockets_below(*folders: Path) -> list[Path]:
    """Every unix socket there, as root sees them."""
    return [path for folder in folders for path in folder.rglob("*") if path.is_socket() and path.suffix != ".sock"]
