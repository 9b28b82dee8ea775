// Where packets come from, and what lets a session in there.
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
    // Adds what was dropped before a poller saw it.
    virtual void add_drops(control::Drops&) {}
    // What the network held back before the interface, by ENA's names; empty where the kernel has the interface.
    [[nodiscard]] virtual control::Group allowances() const { return {}; }
    // Says whether the load balancer's health checks are to find us well, where the kernel does not answer them.
    virtual void set_healthy(bool) {}
    // Whether an idle poller may sleep: on machines that have other work than ours.
    [[nodiscard]] virtual bool may_sleep() const { return false; }
};

// Throws std::runtime_error with what failed and what to do.
std::unique_ptr<Source> open_source(const config::Config& config, SessionSlots& slots);

}  // namespace voice::pipeline
