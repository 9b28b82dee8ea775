// Audio through DPDK: AF_XDP with our own program (the fleet's default), ENA with a dedicated interface (vfio), or
// AF_PACKET where a kernel has no XDP.
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "receive/burst.hpp"
#include "receive/probe.hpp"
#include "receive/udp.hpp"

namespace voice::receive {

enum class Driver {
    kAfXdp,     // net_af_xdp on an interface that the kernel keeps
    kAfPacket,  // net_af_packet, likewise
    kEna,       // net_ena: only DPDK uses the interface
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
    // port for the load balancer's health checks if no kernel answers them; 0: a kernel does
    std::uint16_t health_port = 0;
};

// The arguments for starting DPDK's environment.
[[nodiscard]] std::vector<std::string> eal_arguments(const DpdkOptions& options);

// One receive queue; polled by one thread.
class DpdkQueue {
public:
    static constexpr std::uint16_t kBatch = kBurst;
    static constexpr std::size_t kPrefetchAhead = 3;

    // `healthy` must outlive the queue.
    DpdkQueue(std::uint16_t port, std::uint16_t queue, const DpdkOptions& options, const std::atomic<bool>& healthy) noexcept
        : port_(port), queue_(queue), rtp_port_(options.rtp_port), health_port_(options.health_port), healthy_(&healthy) {}

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
            } else if (health_port_ != 0) {
                answer(i, frame);
            }
        }
        sink(burst_.datagrams());
        if (received > 0) {
            rte_pktmbuf_free_bulk(packets_.data(), received);
        }
        return received;
    }

private:
    // Sends the answer to a health check in the frame of the request.
    void answer(std::size_t at, std::span<std::uint8_t> frame) noexcept {
        const std::size_t bytes = answer_probe(frame, health_port_, healthy_->load(std::memory_order_relaxed));
        if (bytes == 0 || packets_[at]->nb_segs != 1) {
            return;
        }
        packets_[at]->data_len = static_cast<std::uint16_t>(bytes);
        packets_[at]->pkt_len = static_cast<std::uint32_t>(bytes);
        packets_[at]->ol_flags = 0;
        if (rte_eth_tx_burst(port_, queue_, &packets_[at], 1) == 1) {
            packets_[at] = nullptr;  // the driver frees it
        }
    }

    std::uint16_t port_;
    std::uint16_t queue_;
    std::uint16_t rtp_port_;
    std::uint16_t health_port_;
    const std::atomic<bool>* healthy_;
    std::array<rte_mbuf*, kBatch> packets_{};
    Burst burst_;
};

// DPDK's environment and its only port. One per process: DPDK keeps global state.
class Dpdk {
public:
    // Throws std::runtime_error with the failed step and the remedy.
    explicit Dpdk(const DpdkOptions& options);
    ~Dpdk();
    Dpdk(const Dpdk&) = delete;
    Dpdk& operator=(const Dpdk&) = delete;

    [[nodiscard]] DpdkQueue queue(std::uint16_t index) const noexcept { return {port_, index, options_, healthy_}; }

    // Whether health checks find the port open, if we answer them.
    void set_healthy(bool healthy) noexcept { healthy_.store(healthy, std::memory_order_relaxed); }

    // The port's counters with this suffix, by name. Empty if its driver has none or does not answer.
    [[nodiscard]] std::vector<std::pair<std::string, std::uint64_t>> counters(std::string_view ending) const;

private:
    void configure(const DpdkOptions& options);

    std::uint16_t port_ = 0;
    DpdkOptions options_;
    std::atomic<bool> healthy_ = false;
    rte_mempool* pool_ = nullptr;
};

}  // namespace voice::receive
