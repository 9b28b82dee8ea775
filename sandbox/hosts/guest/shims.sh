#!/usr/bin/env bash
# All that a machine's root has which an EC2 host's does not, and why. mmdebstrap runs it: shims.sh ROOT, with the
# rehearsal's certificate authority in AUTHORITY.
set -euo pipefail
root=$1

# The AWS APIs, the registry and the store are the rehearsal's: who signed their certificates must be trusted.
install -m 0644 "$AUTHORITY" "$root/usr/local/share/ca-certificates/rehearsal.crt"
chroot "$root" update-ca-certificates

# No emulator has ENA. virtio-net has what user data asks of it (queues, rings, native XDP) under another name; a driver
# of before 2.17 is the stricter case, which gives XDP half of the queues.
cat >"$root/usr/local/sbin/ethtool" <<'SHIM'
#!/bin/sh
[ "$1" = -i ] || exec /usr/sbin/ethtool "$@"
/usr/sbin/ethtool "$@" | sed -e 's/^driver: .*/driver: ena/' -e 's/^version: .*/version: 2.13.0g/'
SHIM
chmod 0755 "$root/usr/local/sbin/ethtool"

# The ECS-optimized image has the agent's unit, which user data masks.
cat >"$root/usr/lib/systemd/system/ecs.service" <<'SHIM'
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
SHIM
chroot "$root" systemctl enable ecs.service

# Debian configures no interface by itself; Amazon Linux uses networkd with DHCP, too.
cat >"$root/etc/systemd/network/80-ethernet.network" <<'SHIM'
[Match]
Type=ether
[Network]
DHCP=ipv4
SHIM
chroot "$root" systemctl enable systemd-networkd systemd-resolved

# Debian starts Docker by itself. User data is to start it, as it does on an image where it is off.
chroot "$root" systemctl disable docker.service docker.socket containerd.service

# No SSH server is in the root, as nobody logs in, and the disk has its size: cloud-init would complain of both.
cat >"$root/etc/cloud/cloud.cfg.d/90-machine.cfg" <<'SHIM'
ssh_genkeytypes: []
resize_rootfs: false
growpart: {mode: "off"}
SHIM

# A machine lives for minutes: nothing of Debian's own upkeep is to run in it.
chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer
