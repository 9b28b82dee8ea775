// Interfaces for the source of packets and its admission of sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "admission/gate.hpp"
#include "config/config.hpp"
#include "control/telemetry.hpp"
#include "pipeline/poller.hpp"
#include "pipeline/session_slots.hpp"

namespace voice::pipeline {

class Source {
public:
    virtual ~Source() = default;
    virtual std::unique_ptr<Poller> make_poller(PollerParts parts) = 0;
    virtual admission::Requests& requests() = 0;
    virtual admission::Gate& gate() = 0;
    // Adds packets dropped before a poller saw them.
    virtual void add_drops(control::Drops&) {}
    // What the network held back before the interface, by ENA's names; empty if the kernel has the interface.
    [[nodiscard]] virtual control::Group allowances() const { return {}; }
    // Sets the result of the load balancer's health checks, where the kernel does not answer them.
    virtual void set_healthy(bool) {}
    // Whether an idle poller may sleep: on machines with other work.
    [[nodiscard]] virtual bool may_sleep() const { return false; }
};

// Throws std::runtime_error with the cause and the remedy.
std::unique_ptr<Source> open_source(const config::Config& config, SessionSlots& slots);

}  // namespace voice::pipeline
