// Audio through DPDK: AF_XDP with our own program (the fleet's default), ENA on an interface of its own (vfio), or
// AF_PACKET where a kernel has no XDP.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "receive/burst.hpp"
#include "receive/udp.hpp"

namespace voice::receive {

enum class Driver {
    kAfXdp,     // net_af_xdp on an interface that the kernel keeps
    kAfPacket,  // net_af_packet, likewise
    kEna,       // net_ena: the interface belongs to DPDK alone
};

struct DpdkOptions {
    Driver driver = Driver::kAfXdp;
    std::string interface;      // name; of kEna the PCI address
    std::uint16_t queues = 1;
    std::uint16_t ring_size = 256;  // descriptors of each queue
    std::string xdp_program;    // object file of the XDP program, for kAfXdp
    bool huge_pages = true;
    int main_core = 0;
    std::uint16_t rtp_port = 5004;
};

// The arguments that DPDK's environment is started with.
[[nodiscard]] std::vector<std::string> eal_arguments(const DpdkOptions& options);

// One receive queue; polled by one thread.
class DpdkQueue {
public:
    static constexpr std::uint16_t kBatch = kBurst;
    static constexpr std::size_t kPrefetchAhead = 3;

    DpdkQueue(std::uint16_t port, std::uint16_t queue, std::uint16_t rtp_port) noexcept
        : port_(port), queue_(queue), rtp_port_(rtp_port) {}

    // As SocketQueue::poll.
    template <typename Sink>
    std::size_t poll(Sink&& sink) {
        const std::uint16_t received = rte_eth_rx_burst(port_, queue_, packets_.data(), kBatch);
        for (std::size_t i = 0; i < received && i < kPrefetchAhead; ++i) {
            rte_prefetch0(rte_pktmbuf_mtod(packets_[i], void*));
        }
        burst_.clear();
        for (std::size_t i = 0; i < received; ++i) {
            if (i + kPrefetchAhead < received) {
                rte_prefetch0(rte_pktmbuf_mtod(packets_[i + kPrefetchAhead], void*));
            }
            const std::span frame(rte_pktmbuf_mtod(packets_[i], std::uint8_t*), rte_pktmbuf_data_len(packets_[i]));
            if (const auto payload = udp_payload(frame, rtp_port_)) {
                burst_.add(*payload);
            }
        }
        sink(burst_.datagrams());
        if (received > 0) {
            rte_pktmbuf_free_bulk(packets_.data(), received);
        }
        return received;
    }

private:
    std::uint16_t port_;
    std::uint16_t queue_;
    std::uint16_t rtp_port_;
    std::array<rte_mbuf*, kBatch> packets_{};
    Burst burst_;
};

// DPDK's environment and its only port. One a process: DPDK keeps global state.
class Dpdk {
public:
    // Throws std::runtime_error with the step that failed and what to do.
    explicit Dpdk(const DpdkOptions& options);
    ~Dpdk();
    Dpdk(const Dpdk&) = delete;
    Dpdk& operator=(const Dpdk&) = delete;

    [[nodiscard]] DpdkQueue queue(std::uint16_t index) const noexcept { return {port_, index, rtp_port_}; }

private:
    void configure(const DpdkOptions& options);

    std::uint16_t port_ = 0;
    std::uint16_t rtp_port_;
    rte_mempool* pool_ = nullptr;
};

}  // namespace voice::receive
