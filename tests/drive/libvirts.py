"""Two real libvirt nodes on one machine, apart from it: each a libvirtd and an sshd in folders of its own, a bridge
between them, in a network of their own. Their template is a guest of the box's kernel with the QEMU guest agent; or a
machine without a system (`booting=False`), whose clones have a real sshd beside them as their system, and a QEMU guest
agent that says what a test wants."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from probes import until

from hcilab import cluster_image

NODES = {"srv1": "10.77.0.11", "srv2": "10.77.0.12"}
AGENT, IMAGES = "qemu-guest-agent", "qemu-utils"
INIT = r"""#!/usr/bin/bash
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run
mkdir -p /run/sshd /var/run
for m in virtio_pci virtio_blk virtio_net virtio_rng; do modprobe -q $m; done
insmod /usr/lib/virtio_console.ko
hostname guest
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
ip link set lo up; mac=$(cat /sys/class/net/eth0/address)
ip addr add "10.77.$((16#${mac:12:2} % 200 + 1)).$((16#${mac:15:2} % 250 + 1))/16" dev eth0; ip link set eth0 up
/usr/sbin/sshd
qemu-ga -m virtio-serial -p "$(ls /dev/vport*p1)" -t /run -d || ls /dev/vport* /sys/class/virtio-ports
echo 'guest: ready'
while :; do sleep 3600; done
"""
SSHD = """HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /root/authorized
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
UseDNS no
Subsystem sftp internal-sftp
"""
# Every node believes these folders to be the machine's own.
NODE = r"""
mount --make-rprivate /
for d in /var/lib /var/cache /var/log /etc/libvirt; do mkdir -p {home}$d; mount --bind {home}$d $d; done
for f in passwd group; do cp /etc/$f {home}/$f; done
echo 'libvirt-qemu:x:64055:64055::/tmp:/bin/false' >>{home}/passwd
printf 'libvirt-qemu:x:64055:\nkvm:x:64056:\n' >>{home}/group
for f in passwd group; do mount --bind {home}/$f /etc/$f; done
mount -t tmpfs run /run; mkdir -p /run/sshd /run/lock
cat >/etc/libvirt/qemu.conf <<'END'
user = "root"
group = "root"
dynamic_ownership = 0
security_driver = "none"
cgroup_controllers = [ ]
namespaces = [ ]
stdio_handler = "file"
END
/usr/sbin/sshd -f {home}/sshd_config -E {home}/sshd.log
export PATH={home}/../packages/usr/bin:$PATH  # qemu-img of qemu-utils
exec libvirtd 2>{home}/libvirtd.log
"""
TEMPLATE = """<domain type='qemu'><name>{name}</name><title>somebody's</title><description>somebody's</description>
<memory unit='MiB'>1024</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type>{boot}</os><cpu mode='maximum'/>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type='file' device='disk'><driver name='qemu' type='raw'/>
<source file='{pool}/{name}.img'/><target dev='vda' bus='virtio'/></disk>
<interface type='bridge'><source bridge='br0'/><model type='virtio'/></interface>
<serial type='file'><source path='{home}/{name}.console'/></serial>
<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng><memballoon model='none'/></devices></domain>"""

BOOT = """<kernel>{kernel}</kernel><initrd>{initrd}</initrd>
<cmdline>console=ttyS0 quiet panic=-1 mitigations=off rootfstype=ramfs</cmdline>"""
# The nodes' virsh, where the guests have no system: the real one, but for what asks the agent, and for what a test
# wants to go wrong (`fault`: a shell's words for it, of "$@").
VIRSH = r"""#!/bin/sh
[ ! -f {home}/fault ] || . {home}/fault
case "$*" in *qemu-agent-command*) exec {python} -SE {home}/agent.py "$@";; esac
exec /usr/bin/virsh "$@"
"""
AGENT_PY = r"""
import base64, json, pathlib, subprocess, sys
virsh, _, uuid, asked = sys.argv[1:]
name = subprocess.run(["/usr/bin/virsh", "-q", "domname", uuid], capture_output=True, text=True).stdout.strip()
file = pathlib.Path("GUESTS", name + ".json")
if not file.exists():
    sys.exit("error: Guest agent is not responding: QEMU guest agent is not connected")
guest = json.loads(file.read_text())
cards = subprocess.run(["/usr/bin/virsh", "-q", "domiflist", uuid], capture_output=True, text=True).stdout.split()
what = json.loads(asked)["execute"]
if what == "guest-network-get-interfaces":
    macs = {"02:42:00:00:00:01": ["10.77.99.1"], cards[4]: ["fe80::1", *guest["addresses"]]}  # docker0 and the clone's
    said = [{"hardware-address": mac, "ip-addresses": [{"ip-address": one} for one in claimed]}
            for mac, claimed in macs.items()]
elif what == "guest-file-open":
    said = 1000
else:
    said = {"count": 1, "buf-b64": base64.b64encode(guest["key"].encode()).decode(), "eof": True}
print(json.dumps({"return": said}))
"""


# Runs Python code, a line of JSON each, in a fork that has what `hci fleet` imports: a second of each command is that.
FORKS = r"""
import json, os, sys, traceback
import hcilib.cli, hcilib.extras.fleet
for line in sys.stdin:
    asked = json.loads(line)
    if not (pid := os.fork()):
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = 1
        try:
            exec(asked["code"], {"__name__": "__main__"})
            code = 0
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@dataclass
class Nodes:
    """The two nodes; `hci` runs a command's main where their network is, `virsh` on one of them."""

    home: Path
    pids: dict[str, int]
    inside: int
    forks: subprocess.Popen

    def _in(self, pid: int, *argv: str, **more) -> subprocess.CompletedProcess:
        return subprocess.run([*_entered(pid), *argv], capture_output=True, text=True, timeout=900, **more)

    def hci(self, *argv: str) -> subprocess.CompletedProcess:
        return self.python(f"from hcilib.cli import main; raise SystemExit(main({argv!r}))")

    def python(self, code: str) -> subprocess.CompletedProcess:
        said = {name: self.home / f"forks.{name}" for name in ("stdout", "stderr")}
        self.forks.stdin.write(json.dumps({"code": code, **{name: str(file) for name, file in said.items()}}) + "\n")
        self.forks.stdin.flush()
        returncode = int(self.forks.stdout.readline())
        return subprocess.CompletedProcess(code, returncode, *(file.read_text() for file in said.values()))

    @contextlib.contextmanager
    def system(
        self, vm: str, address: str, says: Sequence[str] = (), sftp: bool = True, apt: str = ""
    ) -> Iterator[int]:
        """An sshd at an address of the bridge, with processes of its own, as the system of a VM; yields the process
        id of its init. `says`: the addresses that its agent claims. `apt`: it has no fio, and this shell's words as
        its apt-get."""
        own = self.home / "guests" / f"{vm}.{address}"
        public = _sshd_of(own, address, (self.home / "client.pub").read_text(), sftp=sftp)
        inner = "mount --make-rprivate /; mount -t proc proc /proc; mkdir -p /run/sshd; ip link set lo up; "
        if apt:
            (own / "apt-get").write_text(f"#!/bin/sh\n{apt}\n")
            (own / "apt-get").chmod(0o755)
            inner += f"mount --bind /dev/null {shutil.which('fio')}; mount --bind {own}/apt-get /usr/bin/apt-get; "
        inner += f"until ip addr add {address}/16 dev eth0 2>/dev/null; do sleep 0.1; done; ip link set eth0 up; "
        inner += f"ip route replace 10.77.0.0/16 dev eth0; exec /usr/sbin/sshd -D -f {own}/sshd_config"
        argv = ["unshare", "-m", "-n", "-p", "--fork", "--kill-child", "sh", "-c", inner]
        sshd = subprocess.Popen([*_entered(self.inside), *argv])
        children = Path(f"/proc/{sshd.pid}/task/{sshd.pid}/children")
        said = self.home / "guests" / f"{vm}.json"
        try:
            assert until(children.read_text, 30)
            init, card = int(children.read_text()), f"v{address.replace('.', '')}"
            for command in (f"link add {card} type veth peer name eth0 netns {init}", f"link set {card} master br0 up"):
                done = self._in(self.inside, "ip", *command.split())
                assert done.returncode == 0, done.stderr
            said.write_text(json.dumps({"addresses": list(says or [address]), "key": public}))
            up = f"import socket; socket.create_connection(('{address}', 22), 2)"
            assert until(lambda: self.python(up).returncode == 0, 30)
            yield init
        finally:
            said.unlink(missing_ok=True)
            sshd.kill()
            sshd.wait()
            shutil.rmtree(own)

    def virsh(self, node: str, command: str) -> str:
        done = self._in(self.pids[node], "virsh", "-q", "-c", "qemu:///system", *shlex.split(command))
        assert done.returncode == 0, done.stderr
        return done.stdout


def _entered(pid: int) -> list[str]:
    return ["nsenter", "-t", str(pid), "-m", "-n", "--"]


def _sshd_of(own: Path, address: str, authorized: str, more: str = "", sftp: bool = True) -> str:
    """Write what an sshd at an address needs into a folder of its own; return its public key."""
    own.mkdir(parents=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", own / "hostkey"], check=True)
    (own / "authorized").write_text(authorized)
    config = SSHD.replace("/etc/ssh/ssh_host_ed25519_key", f"{own}/hostkey")
    config = config.replace("/root/authorized", f"{own}/authorized") + f"ListenAddress {address}\n{more}"
    (own / "sshd_config").write_text(config if sftp else re.sub("Subsystem.*", "", config))
    return " ".join((own / "hostkey.pub").read_text().split()[:2])


def guest(folder: Path, authorized: str) -> tuple[Path, Path]:
    """Kernel and initramfs of the box, the latter with an agent, host keys of its own at each start, and a key that
    opens it."""
    cache = cluster_image.cache_folder()
    kernel, initramfs = cluster_image.image()
    wanted = cluster_image.resolve()
    shown = subprocess.run(["apt-cache", "show", "--no-all-versions", AGENT, IMAGES], capture_output=True, text=True)
    ours = dict(re.findall(r"(?ms)^Package: (\S+)$.*?^Version: (\S+)$", shown.stdout))
    if missing := [name for name in (AGENT, IMAGES) if name not in ours]:
        pytest.skip(f"apt knows no {', '.join(missing)}")
    unpacked, root = folder / "packages", folder / "overlay"
    cluster_image.unpack(cluster_image.fetch(wanted | ours, cache), unpacked)
    agent = unpacked / "usr/sbin/qemu-ga"
    [module] = unpacked.glob("lib/modules/*/kernel/drivers/char/virtio_console.ko*")
    keygen = Path(shutil.which("ssh-keygen"))
    for name, source in {
        "usr/sbin/qemu-ga": agent,
        "usr/bin/ssh-keygen": keygen,
        "usr/bin/cksum": Path(shutil.which("cksum")),  # busybox has none, and the guard notes by it what a step left
        "usr/lib/virtio_console.ko": module,
        "usr/bin/busybox": unpacked / "bin/busybox",
    }.items():
        cluster_image._copy(source, root / name)
    libraries = folder / "libraries"
    cluster_image._put_libraries(libraries, unpacked, [agent, keygen])
    for file in (f for f in libraries.rglob("*") if f.is_file()):  # the image's /lib is a link
        where = str(file.relative_to(libraries)).removeprefix("usr/")
        cluster_image._copy(file, root / "usr" / where)
    for name, text in {"init": INIT, "etc/ssh/sshd_config": SSHD, "root/authorized": authorized}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "init").chmod(0o755)
    cluster_image._pack(root, folder / "overlay.cpio")
    both = folder / "initramfs.cpio"
    with both.open("wb") as out:
        for part in (initramfs, folder / "overlay.cpio"):
            with part.open("rb") as file:
                shutil.copyfileobj(file, out)
    return kernel, both


@contextlib.contextmanager
def libvirt_nodes(home: Path, booting: bool = True) -> Iterator[Nodes]:
    """srv1 and srv2, each with a pool `default` and a shut-off VM `template`; ended, with every guest, whatever
    happens."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / "client"], check=True)
    public = (home / "client.pub").read_text()
    boot = ""
    if booting:
        kernel, initrd = guest(home, public)
        boot = BOOT.format(kernel=kernel, initrd=initrd)
    with contextlib.ExitStack() as stack:
        up = "mount --make-rprivate /; ip link set lo up; ip link add br0 type bridge; ip link set br0 up; "
        up += "ip addr add 10.77.0.1/16 dev br0; "
        up += "".join(f"ip addr add {address}/16 dev br0; " for address in NODES.values())
        argv = ["unshare", "-m", "-n", "--kill-child", "sh", "-c", f"{up} echo up; exec sleep 3600"]
        outer = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        stack.callback(outer.wait)
        stack.callback(outer.kill)
        assert outer.stdout.readline() == "up\n"
        inside = outer.pid
        pids = {}
        for name, address in NODES.items():
            own = home / name
            more = f"PidFile {own}/sshd.pid\n"
            if not booting:
                more += f"SetEnv PATH={own}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
            key = _sshd_of(own, address, public, more)
            with (home / "known_hosts").open("a") as known:
                known.write(f"{address} {key}\n")
            if not booting:
                (own / "bin").mkdir()
                (own / "bin/virsh").write_text(VIRSH.format(home=own, python=sys.executable))
                (own / "bin/virsh").chmod(0o755)
                (own / "agent.py").write_text(AGENT_PY.replace("GUESTS", f"{home}/guests"))
            argv = [*_entered(inside), "unshare", "-m", "bash", "-c", NODE.format(home=own)]
            daemon = subprocess.Popen(argv, start_new_session=True)
            pids[name] = daemon.pid
            stack.callback(daemon.wait)
            stack.callback(daemon.terminate)
            stack.callback(_end_sshd, own / "sshd.pid")
        forks = subprocess.Popen(
            [*_entered(inside), sys.executable, "-c", FORKS],
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(forks.wait)
        stack.callback(forks.stdin.close)
        nodes = Nodes(home, pids, inside, forks)
        for name in NODES:
            stack.callback(_end_guests, nodes, name)
            assert until(
                lambda n=name: nodes._in(pids[n], "virsh", "-q", "-c", "qemu:///system", "list").returncode == 0, 30
            ), (home / name / "libvirtd.log").read_text()
            pool = home / name / "pool"
            pool.mkdir()
            nodes.virsh(name, f"pool-create-as default dir --target {pool}")
            nodes.virsh(name, "vol-create-as default template.img 1M --format raw")
            xml = TEMPLATE.format(name="template", boot=boot, pool=pool, home=home / name)
            (home / name / "template.xml").write_text(xml)
            nodes.virsh(name, f"define {home / name / 'template.xml'}")
        yield nodes


def _end_guests(nodes: Nodes, name: str) -> None:
    with contextlib.suppress(AssertionError):
        for guest_name in nodes.virsh(name, "list --name").split():
            nodes.virsh(name, f"destroy {guest_name}")


def _end_sshd(pid_file: Path) -> None:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(pid_file.read_text()), 15)
