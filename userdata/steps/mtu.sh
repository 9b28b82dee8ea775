# shellcheck shell=bash
# EC2 hands out 9001 bytes; native XDP takes 3498 at most and ENA Express 8900.

mtu() {
  ip link set dev "$INTERFACE" mtu "$MTU" || fail "$INTERFACE refuses an MTU of $MTU"
}
