// What admission talks to: where requests come from, what lets packets in, who is told.
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
    // Waits for at least one, and returns how many were written into `ssrcs`; 0 when the time is over.
    virtual std::size_t wait(std::span<std::uint32_t> ssrcs, std::chrono::milliseconds limit) = 0;
};

// Decides packet by packet, in the kernel or in the poller; each call returns false when it did not work.
class Gate {
public:
    virtual ~Gate() = default;
    // `slot`: what Sessions::open() returned.
    virtual bool admit(std::uint32_t ssrc, std::uint32_t slot) = 0;
    virtual bool block(std::uint32_t ssrc) = 0;
    virtual bool remove(std::uint32_t ssrc) = 0;
};

// Told on the admission thread.
class Sessions {
public:
    virtual ~Sessions() = default;
    // Before the gate lets its packets in; returns its place. Nothing: there is no room, and it is not admitted.
    virtual std::optional<std::uint32_t> open(std::uint32_t ssrc, const SessionRecord& record) = 0;
    // Its record has been read again.
    virtual void update(std::uint32_t ssrc, const SessionRecord& record) = 0;
    // After the gate has stopped letting them in.
    virtual void close(std::uint32_t ssrc) = 0;

    struct Session {
        std::uint32_t ssrc;
        std::chrono::nanoseconds silent_for;  // since its last authenticated packet, or since it was admitted
        bool ended;     // its sender has said goodbye
        bool disputed;  // plain RTP has come from elsewhere than its record says, since the last call
    };
    // Calls for each session that is in; the callback must not open or close one.
    virtual void each(const std::function<void(const Session&)>& callback) = 0;
};

}  // namespace voice::admission
