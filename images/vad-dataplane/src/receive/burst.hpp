// Packets that a receive queue delivers at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace voice::receive {

struct Datagram {
    std::span<std::uint8_t> bytes;
    std::uint64_t source;  // address and port, as voice_source_of_ipv4() makes it
};

inline constexpr std::size_t kDatagramBytes = 2048;  // audio is 652 bytes, SRTP some more

// Fixed receive ring size of DPDK's AF_XDP driver, whatever size is requested (ETH_AF_XDP_DFLT_NUM_DESCS).
inline constexpr std::uint32_t kAfXdpDescriptors = 2048;

inline constexpr std::size_t kBurst = 32;  // packets at most

// Datagrams in a queue's memory.
class Burst {
public:
    void clear() noexcept { size_ = 0; }
    void add(const Datagram& datagram) noexcept { datagrams_[size_++] = datagram; }
    [[nodiscard]] std::span<const Datagram> datagrams() const noexcept { return std::span(datagrams_).first(size_); }

private:
    std::array<Datagram, kBurst> datagrams_;
    std::size_t size_ = 0;
};

}  // namespace voice::receive
