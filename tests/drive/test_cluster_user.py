"""The box needs no root: an account without any right boots it, and leaves nothing behind."""

import json
import os
import shutil
import subprocess

import pytest
from boxes import DRIVE_BYTES
from probes import REPOSITORY, processes
from test_lab import ordinary_user, place_python  # noqa: F401 (a fixture)

pytestmark = [pytest.mark.box, pytest.mark.deep]
AS_USER = """
import json, os, sys
from hcilab.cluster import cluster
from hcilib.drive.hosts.hosts import Fleet
with cluster(system="box-drive", drive_bytes=int(sys.argv[1])) as bed, Fleet(bed) as fleet:
    said = fleet.run("blockdev --getsize64 /dev/vda; id -u")["node1"]
    print(json.dumps({"uid": os.getuid(), "said": (said.value or said.error).split(), "disk": bed.vms[0].disks[0].size_bytes}))
"""  # noqa: E501


def test_an_ordinary_user_boots_a_box(box_programs, ordinary_user):  # noqa: F811
    user, home = ordinary_user
    home.chmod(0o755)
    for package in ("hcilib", "hcilab"):
        kept = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, home / "repository" / package, ignore=kept)
    shutil.copy(REPOSITORY / "pyproject.toml", home / "repository")
    _, boot = box_programs
    (home / ".cache" / "hcilib" / "box").mkdir(parents=True)
    for file in boot:
        shutil.copy(file, home / ".cache" / "hcilib" / "box")
    interpreter, packages = place_python(home)
    subprocess.run(["chown", "-R", f"{user}:", home / "repository", home / ".cache"], check=True)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "USER": user, "LOGNAME": user,
                   "PYTHONHOME": str(home / "python"), "LD_LIBRARY_PATH": str(home / "python" / "lib"),
                   "PYTHONPATH": os.pathsep.join([str(home / "repository"), str(packages)])}  # fmt: skip
    done = subprocess.run(
        [shutil.which("runuser"), "-u", user, "--", interpreter, "-c", AS_USER, str(DRIVE_BYTES)],
        cwd=home / "repository",
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["uid"] == (home / "repository").stat().st_uid != 0
    assert told["said"] == [str(DRIVE_BYTES), "0"], "root in the guest, nobody outside"
    assert not processes(str(home))
    assert list((home / "repository" / "out").iterdir()) == []
