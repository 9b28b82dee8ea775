// Interfaces of admission: the source of requests, the gate of packets, and the sessions.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "admission/session_record.hpp"

namespace voice::admission {

// Unknown SSRCs that sent a packet.
class Requests {
public:
    virtual ~Requests() = default;
    // Waits for at least one, and returns how many were written to `ssrcs`; 0 after the time-out.
    virtual std::size_t wait(std::span<std::uint32_t> ssrcs, std::chrono::milliseconds limit) = 0;
};

// Decides per packet, in the kernel or in the poller; each call returns false on failure.
class Gate {
public:
    virtual ~Gate() = default;
    // `slot`: what Sessions::open() returned.
    virtual bool admit(std::uint32_t ssrc, std::uint32_t slot) = 0;
    virtual bool block(std::uint32_t ssrc) = 0;
    virtual bool remove(std::uint32_t ssrc) = 0;
};

// Called on the admission thread.
class Sessions {
public:
    virtual ~Sessions() = default;
    // Called before the gate admits its packets; returns its slot, or nothing when there is no room and it is not
    // admitted.
    virtual std::optional<std::uint32_t> open(std::uint32_t ssrc, const SessionRecord& record) = 0;
    // Its record has been read again.
    virtual void update(std::uint32_t ssrc, const SessionRecord& record) = 0;
    // Called after the gate has stopped admitting its packets.
    virtual void close(std::uint32_t ssrc) = 0;

    struct Session {
        std::uint32_t ssrc;
        std::chrono::nanoseconds silent_for;  // since its last authenticated packet, or since it was admitted
        bool ended;     // its sender has ended it
        // packets that its record does not allow have arrived since the last call: the record may have changed
        bool disputed;
    };
    // Calls for each admitted session; the callback must not open or close one.
    virtual void each(const std::function<void(const Session&)>& callback) = 0;
};

}  // namespace voice::admission
