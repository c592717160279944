"""known_hosts as people have it: markers, hashes, wildcards, comments and garbage, against real sshds."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramiko.hostkeys import HostKeys

from hcilib.drive.hosts.hosts import Fleet
from hcilib.drive.hosts.openssh import KnownHosts

pytestmark = pytest.mark.lab


@pytest.fixture
def reach(bed, tmp_path):
    """vm1 alone, by a known_hosts of these lines; {name} and {key} are vm1's, {other} is vm2's key."""
    keys = dict(line.split(" ", 1) for line in Path(bed.known_hosts).read_text().splitlines())
    name, other = (f"[{vm.address}]:{vm.port}" for vm in bed.vms[:2])

    def write(*lines: str):
        given = {"name": name, "hashed": HostKeys.hash_host(name), "key": keys[name], "other": keys[other]}
        (tmp_path / "known").write_text("".join(line.format(**given) + "\n" for line in lines))
        one = bed.model_copy(update={"known_hosts": str(tmp_path / "known"), "vms": bed.vms[:1], "nodes": ()})
        with Fleet(one) as fleet:
            return fleet.run("echo reached")["vm1"]

    return write


@pytest.mark.parametrize(
    "lines",
    [
        ["{hashed} {key}"],
        ["[127.*]:2222,elsewhere {key}"],
        ["{name} {key} me@here a comment"],
        ["# {name} {other}", "", "   ", "\t{name}\t{key}"],
        [
            "garbage",
            "a b",
            "x ssh-ed25519 %%%",
            "y ssh-ed25519 AAAA",
            "\x00\x01",
            "{name} ssh-unheard-of AAAA",
            "{name} {key}",
        ],
        ["@cert-authority *.example.com {other}", "{name} {key}"],
        ["@cert-authority * ssh-ed25519 broken", "{name} {key}"],
        ["@revoked * {other}", "{name} {key}"],
        ["@revoked elsewhere {key}", "{name} {key}"],
        ["@whatever * {other}", "{name} {key}"],
    ],
    ids=[
        "hashed",
        "wildcard",
        "comment",
        "blank",
        "garbage",
        "authority",
        "broken-authority",
        "revoked-other",
        "revoked-elsewhere",
        "marker",
    ],
)
def test_what_is_known_is_reached_whatever_else_stands_there(reach, lines):
    outcome = reach(*lines)
    assert outcome.ok, outcome.error


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{name} {key}", "@revoked * {key}"], "host key revoked: {file} line 2 says so"),
        (["@revoked {hashed} {key}", "{hashed} {key}"], "host key revoked: {file} line 1 says so"),
        (["{name} {key}", "@revoked [127.*]:2222 {key}"], "host key revoked: {file} line 2"),
        (["{name} {key}", "@revoked * ssh-ed25519 torn"], "line 2 says so, though the key there cannot be read"),
        (["@cert-authority * {key}"], "host key unknown: add it to known_hosts after checking its fingerprint on "
                                      "the host ({file}: line 1 names a "
                                      "certificate authority, whose signatures are not checked here)"),
        (["# a comment", "{name} ssh-ed25519 %%%"], "({file}: line 2 has a key that cannot be read)"),
        (["[127.*]:2222,!{name} {key}"], "host key unknown"),
        (["{name} {other}"], "host key does not match known_hosts"),
        (["@revoked {name} {key}", "{name} {other}"], "host key does not match known_hosts"),
        (["@whatever {name} {key}"], "host key unknown"),
    ],
)  # fmt: skip
def test_what_is_not_is_refused_with_the_line_that_decides(reach, lines, said, tmp_path):
    outcome = reach(*lines)
    assert not outcome.ok
    assert said.replace("{file}", str(tmp_path / "known")) in outcome.error


@given(
    st.lists(
        st.text(max_size=60)
        | st.sampled_from(
            ["@revoked", "@revoked ", "@cert-authority * ssh-rsa AAAA", "|1|x|y ssh-rsa AAAA", "! ssh-rsa A"]
        )
    )
)
def test_no_file_ends_in_a_traceback(tmp_path_factory, lines):
    file = tmp_path_factory.getbasetemp() / f"known{random.randrange(8)}"
    file.write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")
    known = KnownHosts(file)
    assert known.keys("host") == {}
