#!/usr/bin/env bash
# What must this machine have before anything runs? Installs what is missing; says in one line what it cannot install.
set -euo pipefail
cd "$(dirname "$0")"
export PATH="$HOME/.local/bin:$PATH:/usr/sbin"

need() { # need <what for> <program=package>...: apt-get the packages whose program is not there
  local what=$1 packages=""; shift
  for pair in "$@"; do command -v "${pair%%=*}" >/dev/null || packages+=" ${pair#*=}"; done
  [ -n "$packages" ] || return 0
  local sudo=""; [ "$(id -u)" = 0 ] || sudo=sudo
  command -v apt-get >/dev/null || { echo "$what: install what your system calls Debian's$packages, then run make again" >&2; exit 1; }
  [ -z "$sudo" ] || command -v sudo >/dev/null || { echo "$what: ask root to run: apt-get install -y --no-install-recommends$packages" >&2; exit 1; }
  echo "$what: installing$packages"
  { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } >/dev/null \
    || { echo "$what: apt-get could not install$packages" >&2; exit 1; }
}

need "the lab" fio=fio sshd=openssh-server qemu-storage-daemon=qemu-system-common nbdkit=nbdkit
# Real storage stacks on virtual nodes: what the guests are made of. Their kernel is fetched by apt too, and never installed.
[ "${1:-}" != cluster ] || need "the box" qemu-system-x86_64=qemu-system-x86 iperf3=iperf3 "libvirtd=libvirt-daemon libvirt-daemon-driver-qemu" virsh=libvirt-clients pkill=procps ip=iproute2 blkid=util-linux
[ "${1:-}" != cluster ] || need "the Ceph cluster" ceph-mon=ceph-mon ceph-mgr=ceph-mgr ceph-osd=ceph-osd rbd=ceph-common
# The tests look at JupyterLab and at the report in a browser. Without one they skip that and say so; the rest needs none.
if [ "${1:-}" = test ] && ! command -v chromium-browser >/dev/null; then
  (need "the tests in a browser" chromium=chromium) || echo "make test goes on without them" >&2
fi

# Inside the conda environment of environment.yml Python is already complete.
[ "${CONDA_DEFAULT_ENV:-}" != hcilib ] || exit 0

if ! command -v uv >/dev/null; then
  need "uv" pip3=python3-pip
  python3 -m pip install --quiet --user --break-system-packages uv 2>/dev/null || python3 -m pip install --quiet --user uv \
    || { echo "uv: pip could not install it; install uv by hand, then run make again" >&2; exit 1; }
fi
# The system's certificates, where it has them: a company's proxy is known there and not to uv. (Both names: uv renamed it.)
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true
# The lock's environment, compiled once: uncompiled, every notebook pays seconds. Quick when nothing changed.
command -v uv >/dev/null && uv=uv || uv="python3 -m uv"
(n=0; while sleep 5 >/dev/null 2>&1; do n=$((n+5)); echo "Python packages of uv.lock: $n s"; done) & beat=$!
trap 'kill $beat' EXIT
$uv sync --quiet --frozen --compile-bytecode
