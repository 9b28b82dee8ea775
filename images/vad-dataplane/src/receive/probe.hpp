// Answers a load balancer's health checks on an interface that no kernel has: of TCP, what a connection takes that is
// opened and closed. It keeps nothing of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace voice::receive {

// Turns an IPv4 segment to `port` into the answer to it, in its place: to a SYN an acknowledgement, or a reset where
// `open` is false; to data and to an end an acknowledgement. Returns the bytes of the answer's frame; 0 where there is
// none to give, and the frame is as it was.
[[nodiscard]] std::size_t answer_probe(std::span<std::uint8_t> frame, std::uint16_t port, bool open) noexcept;

}  // namespace voice::receive
