#!/usr/bin/env bash
# What must this machine have before anything runs? Lists what is missing and what it is for, then installs it.
# ./setup.sh, ./setup.sh test (the browser too), ./setup.sh cluster (real storage stacks too).
# HCILIB_NO_INSTALL=1 ./setup.sh ... lists alone: nothing is installed, as root or otherwise.
set -euo pipefail
cd "$(dirname "$0")"
UV=0.13.9 # the version that wrote uv.lock
export PATH="$PWD/.venv-uv/bin:$HOME/.local/bin:$PATH:/usr/sbin"
groups=() # "what for|packages", of those that are missing

want() { # want <what for> <program=package>...: the packages whose program is not there
  local what=$1 packages=""; shift
  for pair in "$@"; do command -v "${pair%%=*}" >/dev/null || packages+=" ${pair#*=}"; done
  [ -z "$packages" ] || groups+=("$what|$packages")
}

install_as_root() { # install_as_root <what for> <packages>
  local sudo=""; [ "$(id -u)" = 0 ] || sudo=sudo
  command -v apt-get >/dev/null || { echo "$1: install what your system calls Debian's$2, then run make again" >&2; return 1; }
  [ -z "$sudo" ] || command -v sudo >/dev/null || { echo "$1: ask root to run: apt-get install -y --no-install-recommends$2" >&2; return 1; }
  { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $2; } >/dev/null \
    || { echo "$1: apt-get could not install$2" >&2; return 1; }
}

stable_kernels() { # stable_kernels <environment>: its kernels report no version of Python, and notebooks keep none
  # JupyterLab writes what a kernel reports into every notebook that it opens. Then the notebook is marked as changed.
  mkdir -p "$1/etc/ipython"
  printf '%s\n' 'from ipykernel.ipkernel import IPythonKernel' '' 'IPythonKernel.language_info.pop("version", None)' \
    >"$1/etc/ipython/ipython_kernel_config.py"
}

want "the lab, hosts and drives of known speed on this machine" \
  fio=fio sshd=openssh-server qemu-storage-daemon=qemu-system-common nbdkit=nbdkit
# The guests' kernel is fetched by apt too, and never installed.
[ "${1:-}" != cluster ] || want "the box, real storage stacks on virtual nodes" \
  qemu-system-x86_64=qemu-system-x86 iperf3=iperf3 "libvirtd=libvirt-daemon libvirt-daemon-driver-qemu" virsh=libvirt-clients \
  pkill=procps ip=iproute2 blkid=util-linux smartctl=smartmontools mkfs.xfs=xfsprogs
[ "${1:-}" != cluster ] || want "the Ceph cluster on loopback" ceph-mon=ceph-mon ceph-mgr=ceph-mgr ceph-osd=ceph-osd rbd=ceph-common
# Without a browser the tests that look into one are skipped, and say so.
BROWSER="the tests in a browser, JupyterLab and the report"
[ "${1:-}" != test ] || command -v chromium-browser >/dev/null || want "$BROWSER" chromium=chromium
# Inside the conda environment of environment.yml Python is already complete.
uv=yes
if [ "${CONDA_DEFAULT_ENV:-}" = hcilib ] || [ "$(uv --version 2>/dev/null | cut -d' ' -f2)" = "$UV" ]; then
  uv=""
else # Debian's python3 makes no environment without python3-venv
  python3 -c 'import ensurepip' 2>/dev/null && venv=sh || venv=
  want "uv, which fetches the Python packages of uv.lock" python3=python3 "$venv=python3-venv"
fi

[ ${#groups[@]} = 0 ] || echo "Missing on this machine, installed as root by apt-get:"
for group in "${groups[@]}"; do echo "  ${group%%|*}:${group#*|}"; done
[ -z "$uv" ] || echo "Installed in this folder: uv $UV in .venv-uv"
[ -z "${HCILIB_NO_INSTALL:-}" ] || { echo "Nothing was installed, as HCILIB_NO_INSTALL is set. Next: the packages of uv.lock in .venv"; exit 0; }
for group in "${groups[@]}"; do
  install_as_root "${group%%|*}" "${group#*|}" || [ "${group%%|*}" = "$BROWSER" ] || exit 1
done
[ "${CONDA_DEFAULT_ENV:-}" != hcilib ] || { stable_kernels "$CONDA_PREFIX"; exit 0; }

if [ -n "$uv" ]; then
  { python3 -m venv .venv-uv && .venv-uv/bin/python -m pip install --quiet --disable-pip-version-check "uv==$UV"; } \
    || { echo "uv: pip could not install it into .venv-uv; put uv $UV on PATH, then run make again" >&2; exit 1; }
fi
# The system's certificates, where it has them: a company's proxy is known there and not to uv. (Both names: uv renamed it.)
[ ! -e /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true
# The lock's environment, compiled once: uncompiled, every notebook pays seconds. Quick when nothing changed.
(n=0; while sleep 5 >/dev/null 2>&1; do n=$((n+5)); echo "Python packages of uv.lock: $n s"; done) & beat=$!
trap 'kill $beat' EXIT
uv sync --quiet --frozen --compile-bytecode
stable_kernels .venv
