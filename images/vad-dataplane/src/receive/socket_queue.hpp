// Audio from an ordinary UDP socket, for machines without XDP or DPDK.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "receive/burst.hpp"
#include "wire/packet.h"

namespace voice::receive {

// One of several sockets that share the port (SO_REUSEPORT); the kernel distributes senders among them. Reads in
// batches into its own buffers.
class SocketQueue {
public:
    static constexpr std::size_t kBatch = kBurst;

    // Throws std::system_error if the address cannot be bound.
    SocketQueue(const std::string& address, std::uint16_t port);
    ~SocketQueue();
    SocketQueue(const SocketQueue&) = delete;
    SocketQueue& operator=(const SocketQueue&) = delete;

    // Passes waiting datagrams, up to a batch, to `sink` as a span of Datagrams that is valid during the call; returns
    // their number. Never blocks.
    template <typename Sink>
    std::size_t poll(Sink&& sink) {
        const std::size_t received = receive();
        burst_.clear();
        for (std::size_t i = 0; i < received; ++i) {
            // A truncated datagram is no audio and must not pass as such.
            if ((headers_[i].msg_hdr.msg_flags & MSG_TRUNC) == 0) {
                burst_.add({{buffers_[i].data(), headers_[i].msg_len},
                            voice_source_of_ipv4(sources_[i].sin_addr.s_addr, sources_[i].sin_port)});
            }
        }
        sink(burst_.datagrams());
        return received;
    }

    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

private:
    std::size_t receive() noexcept;

    int socket_ = -1;
    std::uint16_t port_ = 0;
    std::vector<std::array<std::uint8_t, kDatagramBytes>> buffers_;
    std::array<iovec, kBatch> vectors_{};
    std::array<sockaddr_in, kBatch> sources_{};
    std::array<mmsghdr, kBatch> headers_{};
    Burst burst_;
};

}  // namespace voice::receive
