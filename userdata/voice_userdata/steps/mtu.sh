# shellcheck shell=bash
# EC2 assigns an MTU of 9001 bytes; native XDP takes 3498 at most and ENA Express 8900. networkd asks DHCP again
# whenever the link comes back, so it needs the limit too: as a drop-in of the interface's configuration file.

mtu() {
  local file folder
  file=$(networkctl status "$INTERFACE" | awk '/Network File:/ {print $3}')
  [[ $file == *.network ]] || fail "networkd does not configure $INTERFACE: its MTU would be reset when the link goes down"
  folder=$ROOT/etc/systemd/network/${file##*/}.d
  (
    umask 022 # networkd is no root
    mkdir -p "$folder"
    printf '[Link]\nMTUBytes=%s\n[DHCPv4]\nUseMTU=no\n' "$MTU" >"$folder/90-voice-mtu.conf"
  )
  networkctl reload || fail 'networkd cannot reload its configuration'
  ip link set dev "$INTERFACE" mtu "$MTU" || fail "$INTERFACE does not support an MTU of $MTU"
}
