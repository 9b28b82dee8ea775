// Finds the payload of a UDP datagram in an Ethernet frame.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "receive/burst.hpp"

namespace voice::receive {

// Returns the payload of an unfragmented datagram to `port`; nothing for any other frame. The rules equal the XDP
// program's (xdp/steer.bpf.c): sources without XDP deliver what it would pass to the kernel.
[[nodiscard]] std::optional<Datagram> udp_payload(std::span<std::uint8_t> frame, std::uint16_t port) noexcept;

}  // namespace voice::receive
