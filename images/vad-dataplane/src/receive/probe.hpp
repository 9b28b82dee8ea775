// Answers a load balancer's health checks on an interface without a kernel: the part of TCP that opens and closes a
// connection. It is stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace voice::receive {

// Converts an IPv4 segment to `port` into the answer to it, in place: to a SYN an acknowledgement, or a reset if `open`
// is false; to data and FIN an acknowledgement. Returns the length of the answer's frame; 0 if there is no answer, with
// the frame unchanged.
[[nodiscard]] std::size_t answer_probe(std::span<std::uint8_t> frame, std::uint16_t port, bool open) noexcept;

}  // namespace voice::receive
