#include "pipeline/source.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "admission/request_queue.hpp"
#include "admission/steer_gate.hpp"
#include "pipeline/user_gate.hpp"
#include "receive/dpdk.hpp"
#include "receive/socket_queue.hpp"
#include "xdp/steer_maps.hpp"

#ifndef VOICE_XDP_PROGRAM
#error "the build says where the XDP program is installed"
#endif

namespace voice::pipeline {
namespace {

// Sockets: machines without XDP or DPDK.
class Sockets final : public Source {
public:
    Sockets(const config::Config& config, SessionSlots& slots) : slots_(slots), gate_(requests_, config.admissions_per_s) {
        for (unsigned i = 0; i < config.rx_queues; ++i) {
            queues_.push_back(std::make_unique<receive::SocketQueue>(config.host_address, config.rtp_port));
        }
    }

    std::unique_ptr<Poller> make_poller(PollerParts parts) override {
        auto& queue = queues_[static_cast<std::size_t>(parts.index)];
        return std::make_unique<QueuePoller<receive::SocketQueue>>(0U, *queue, std::move(parts), slots_.slots(), gate_);
    }
    admission::Requests& requests() override { return requests_; }
    admission::Gate& gate() override { return gate_; }
    [[nodiscard]] bool may_sleep() const override { return true; }

private:
    SessionSlots& slots_;
    std::vector<std::unique_ptr<receive::SocketQueue>> queues_;
    admission::RequestQueue requests_;
    UserGate gate_;
};

// DPDK without our XDP program: AF_PACKET, or an interface of its own.
class Packets final : public Source {
public:
    Packets(const config::Config& config, const receive::DpdkOptions& options, SessionSlots& slots)
        : slots_(slots), ring_size_(config.rx_ring_size), dpdk_(options), gate_(requests_, config.admissions_per_s) {
        for (unsigned i = 0; i < config.rx_queues; ++i) {
            queues_.push_back(dpdk_.queue(static_cast<std::uint16_t>(i)));
        }
    }

    std::unique_ptr<Poller> make_poller(PollerParts parts) override {
        auto& queue = queues_[static_cast<std::size_t>(parts.index)];
        return std::make_unique<QueuePoller<receive::DpdkQueue>>(ring_size_, queue, std::move(parts), slots_.slots(),
                                                                 gate_);
    }
    admission::Requests& requests() override { return requests_; }
    admission::Gate& gate() override { return gate_; }
    [[nodiscard]] control::Group allowances() const override { return dpdk_.counters("_allowance_exceeded"); }
    void set_healthy(bool healthy) override { dpdk_.set_healthy(healthy); }

private:
    SessionSlots& slots_;
    std::uint32_t ring_size_;
    receive::Dpdk dpdk_;
    std::vector<receive::DpdkQueue> queues_;
    admission::RequestQueue requests_;
    UserGate gate_;
};

// AF_XDP: the XDP program knows the sessions, and drops packets of no session.
class Steered final : public Source, private Senders {
public:
    Steered(const config::Config& config, const receive::DpdkOptions& options, SessionSlots& slots)
        : slots_(slots), ring_size_(config.rx_ring_size), dpdk_(options), steer_(open_maps(config)), gate_(*steer_) {
        const voice_steer_settings settings{.rtp_port = config.rtp_port,
                                            .packets_per_s = config.packets_per_s,
                                            .admissions_per_s = std::max(1U, config.admissions_per_s / config.rx_queues)};
        if (!steer_->configure(settings)) {
            throw std::runtime_error("the XDP program on " + config.interface + " does not take its settings");
        }
        for (unsigned i = 0; i < config.rx_queues; ++i) {
            queues_.push_back(dpdk_.queue(static_cast<std::uint16_t>(i)));
        }
    }

    std::unique_ptr<Poller> make_poller(PollerParts parts) override {
        auto& queue = queues_[static_cast<std::size_t>(parts.index)];
        return std::make_unique<QueuePoller<receive::DpdkQueue>>(ring_size_, queue, std::move(parts), slots_.slots(),
                                                                 static_cast<Senders&>(*this));
    }
    admission::Requests& requests() override { return gate_; }
    admission::Gate& gate() override { return gate_; }

    void add_drops(control::Drops& drops) override {
        using control::DropReason;
        const xdp::Counts counts = steer_->counts();
        const std::pair<DropReason, voice_steer_count> pairs[] = {
            {DropReason::kNotRtp, VOICE_STEER_NOT_RTP},
            {DropReason::kUnknownSession, VOICE_STEER_UNKNOWN_SESSION},
            {DropReason::kBlocked, VOICE_STEER_BLOCKED},
            {DropReason::kAdmissionFull, VOICE_STEER_ADMISSION_FULL},
            {DropReason::kRateLimited, VOICE_STEER_RATE_LIMITED},
            {DropReason::kNoSocket, VOICE_STEER_NO_SOCKET},
        };
        for (const auto& [reason, count] : pairs) {
            control::drops_of(drops, reason) += counts[count];
        }
    }

private:
    static std::unique_ptr<xdp::SteerMaps> open_maps(const config::Config& config) {
        std::string error;
        auto steer = xdp::SteerMaps::open(config.interface, error);
        if (steer == nullptr) {
            throw std::runtime_error("the XDP program on " + config.interface + ": " + error);
        }
        return steer;
    }

    // Reached between the XDP program's admission of a session and the poller's, or after its end.
    control::DropReason on_unknown(std::uint32_t, std::uint64_t, std::int64_t) noexcept override {
        return control::DropReason::kUnknownSession;
    }
    void on_sources(std::uint32_t slot, const xdp::Sources& sources) noexcept override {
        steer_->set_sources(slot, sources);
    }
    void on_authentic_stranger(std::uint32_t slot) noexcept override { steer_->pay_back(slot); }

    SessionSlots& slots_;
    std::uint32_t ring_size_;
    receive::Dpdk dpdk_;
    std::unique_ptr<xdp::SteerMaps> steer_;
    admission::SteerGate gate_;
    std::vector<receive::DpdkQueue> queues_;
};

// Hosts of the fleet have huge pages, or fail earlier; a developer's machine may have none.
bool has_huge_pages(unsigned mib) {
    std::ifstream file("/sys/kernel/mm/hugepages/hugepages-" + std::to_string(mib * 1024) + "kB/free_hugepages");
    unsigned long free = 0;
    return file >> free && free > 0;
}

receive::DpdkOptions dpdk_options(const config::Config& config, receive::Driver driver) {
    return {.driver = driver,
            .interface = config.interface,
            .queues = static_cast<std::uint16_t>(config.rx_queues),
            .ring_size = static_cast<std::uint16_t>(config.rx_ring_size),
            .xdp_program = driver == receive::Driver::kAfXdp ? VOICE_XDP_PROGRAM : "",
            .huge_pages = has_huge_pages(config.huge_page_size_mib),
            .main_core = 0,
            .rtp_port = config.rtp_port,
            .health_port = driver == receive::Driver::kEna ? config.health_port : std::uint16_t{0}};
}

}  // namespace

std::unique_ptr<Source> open_source(const config::Config& config, SessionSlots& slots) {
    std::string error;
    switch (config.data_path) {
        case config::DataPath::kSocket:
            return std::make_unique<Sockets>(config, slots);
        case config::DataPath::kAfPacket:
            return std::make_unique<Packets>(config, dpdk_options(config, receive::Driver::kAfPacket), slots);
        case config::DataPath::kVfio:
            return std::make_unique<Packets>(config, dpdk_options(config, receive::Driver::kEna), slots);
        case config::DataPath::kAfXdp:
            if (!xdp::SteerMaps::remove_leftover(config.interface, error)) {
                throw std::runtime_error("the XDP program on " + config.interface + ": " + error);
            }
            return std::make_unique<Steered>(config, dpdk_options(config, receive::Driver::kAfXdp), slots);
    }
    throw std::logic_error("no such data path");
}

}  // namespace voice::pipeline
