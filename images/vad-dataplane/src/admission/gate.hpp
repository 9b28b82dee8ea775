// What admission talks to: where requests come from, what lets packets in, who is told.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "admission/session_record.hpp"

namespace voice::admission {

// Unknown SSRCs that sent a packet.
class Requests {
public:
    virtual ~Requests() = default;
    // Waits for at least one, and returns how many were written into `ssrcs`; 0 when the time is over.
    virtual std::size_t wait(std::span<std::uint32_t> ssrcs, std::chrono::milliseconds limit) = 0;
};

// Decides packet by packet, in the kernel or in the poller; each call returns false when it did not work.
class Gate {
public:
    virtual ~Gate() = default;
    virtual bool admit(std::uint32_t ssrc) = 0;
    virtual bool block(std::uint32_t ssrc) = 0;
    virtual bool remove(std::uint32_t ssrc) = 0;

    struct Session {
        std::uint32_t ssrc;
        bool blocked;
        std::chrono::nanoseconds silent_for;  // since its last packet, or since it was admitted
    };
    // Calls for each entry; the callback must not change the gate.
    virtual void each(const std::function<void(const Session&)>& callback) = 0;
};

// Told on the admission thread.
class Sessions {
public:
    virtual ~Sessions() = default;
    // Before the gate lets its packets in. False: there is no room, and it is not admitted.
    virtual bool open(std::uint32_t ssrc, const SessionRecord& record) = 0;
    // After the gate has stopped letting them in.
    virtual void close(std::uint32_t ssrc) = 0;
};

}  // namespace voice::admission
