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
# Amazon Linux has no System V scripts: where one is, `systemctl enable` calls Debian's tools for it, for a minute.
rm "$root/etc/init.d/docker"

# No SSH server is in the root, as nobody logs in, and the disk has its size: cloud-init would complain of both.
cat >"$root/etc/cloud/cloud.cfg.d/90-machine.cfg" <<'SHIM'
ssh_genkeytypes: []
resize_rootfs: false
growpart: {mode: "off"}
SHIM

# A machine lives for minutes: nothing of Debian's own upkeep is to run in it.
chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer

# An emulated Python imports the AWS CLI for a minute, and user data calls it a dozen times. It is imported once: each
# call is a fork of that process, with the caller's arguments, environment, folder and files.
cat >"$root/usr/local/lib/aws-imported" <<'SHIM'
import ast, os, signal, socket, sys
from awscli.clidriver import AWSCLIEntryPoint, create_clidriver

driver = create_clidriver()
for service in "autoscaling", "ecr", "logs", "secretsmanager", "ssm":
    driver.session.create_client(service, "us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listening = socket.socket(fileno=3)
while True:
    caller, _ = listening.accept()
    if os.fork():
        caller.close()
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    said, files, *_ = socket.recv_fds(caller, 1 << 17, 3)
    arguments, folder, environment = ast.literal_eval(said.decode())
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    status = AWSCLIEntryPoint(driver).main(arguments) or 0
    sys.stdout.flush()
    caller.sendall(bytes([status]))
    os._exit(0)
SHIM
cat >"$root/usr/bin/aws" <<'SHIM'
#!/usr/bin/python3 -IS
import _socket, os, sys

server = _socket.socket(_socket.AF_UNIX)
server.connect("/run/aws-imported")
said = repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()
files = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
server.sendmsg([said], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
sys.exit((server.recv(1) or b"\xff")[0])
SHIM
cat >"$root/etc/systemd/system/aws-imported.socket" <<'SHIM'
[Socket]
ListenStream=/run/aws-imported
[Install]
WantedBy=sockets.target
SHIM
cat >"$root/etc/systemd/system/aws-imported.service" <<'SHIM'
[Unit]
ConditionKernelCommandLine=!cloud-init=disabled
[Service]
ExecStart=/usr/bin/python3 /usr/local/lib/aws-imported
[Install]
WantedBy=multi-user.target
SHIM
chroot "$root" systemctl enable aws-imported.socket aws-imported.service
