#!/usr/bin/env bash
# All differences between a machine's root file system and that of an EC2 host, with reasons. mmdebstrap runs it:
# shims.sh ROOT, with the rehearsal's certificate authority in AUTHORITY.
set -euo pipefail
root=$1

# The rehearsal provides the AWS APIs, the registry and the store: the machine must trust their certificate authority.
install -m 0644 "$AUTHORITY" "$root/usr/local/share/ca-certificates/rehearsal.crt"
chroot "$root" update-ca-certificates

# No emulator has ENA. virtio-net supports the same operations (queues, rings, native XDP) under another name. An ENA
# driver before 2.17 is the stricter case, which gives XDP half of the queues.
cat >"$root/usr/local/sbin/ethtool" <<'SHIM'
#!/bin/sh
[ "$1" = -i ] || exec /usr/sbin/ethtool "$@"
/usr/sbin/ethtool "$@" | sed -e 's/^driver: .*/driver: ena/' -e 's/^version: .*/version: 2.13.0g/'
SHIM
chmod 0755 "$root/usr/local/sbin/ethtool"

# The ECS-optimized image contains the agent's unit, which user data masks.
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

# Debian starts Docker automatically. Here user data must start it, as on an image where it is disabled.
chroot "$root" systemctl disable docker.service docker.socket containerd.service
# Amazon Linux has no System V scripts: for a service with one, `systemctl enable` calls Debian's tools, which takes a
# minute.
rm "$root/etc/init.d/docker"

# The root has no SSH server, because no user logs in, and the disk has its final size: cloud-init would warn of both.
cat >"$root/etc/cloud/cloud.cfg.d/90-machine.cfg" <<'SHIM'
ssh_genkeytypes: []
resize_rootfs: false
growpart: {mode: "off"}
SHIM

# A machine runs for minutes: Debian's maintenance jobs must not run in it.
chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer

# An emulated Python needs a minute to import the AWS CLI, and user data calls it a dozen times. It is imported once,
# and each call is a fork of that process with the caller's arguments, environment, folder and files.
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
