#!/usr/bin/bash
# The first process of a guest: mounts, names, network, sshd. Everything else is done over SSH.
export PATH=/usr/sbin:/usr/bin HOME=/root LC_ALL=C
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run
mkdir -p /run/sshd /run/lock /run/drbd /run/keys
echo 1 >/proc/sys/kernel/printk
for m in virtio_pci virtio_blk virtio_net virtio_rng qemu_fw_cfg; do modprobe -q $m; done

# What differs between guests comes by the firmware's configuration device: it is in no image and in no command line.
given=/sys/firmware/qemu_fw_cfg/by_name/opt/org.hcilib
for f in hostkey authorized hosts name number; do cat $given/$f/raw >/run/keys/$f || echo "hci: no $f was given"; done
chmod 600 /run/keys/*
hostname "$(cat /run/keys/name)"
cat /run/keys/hosts >>/etc/hosts

ip link set lo up
ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up; ip route add default via 10.0.2.2
if [ -e /sys/class/net/eth1 ]; then
  ip link set eth1 name repl; ip addr add "10.9.0.$(cat /run/keys/number)/24" dev repl; ip link set repl up
fi
/usr/sbin/sshd -e 2>/run/sshd.log && echo "hci: ready after $(cut -d' ' -f1 /proc/uptime) s" || cat /run/sshd.log
while :; do sleep 3600; done
