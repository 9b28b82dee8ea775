// Which ASR host a session's audio goes to: silicon before GPUs, then the host with the most free slots. A session
// stays where it is, since its host holds what was said before; it moves when the host has died, and when the host
// drains, at the next start of speech, so that no utterance is torn.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ship/host.hpp"

namespace voice::ship {

// Used by one thread.
class Pinning {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kIdle{120};  // without a chunk, a session gives its slot back

    // Takes a new reading of the registry. Slots that sessions have taken since the one before are in it already, or
    // will be in the next: meanwhile a host is at worst offered a few sessions too many.
    void update(Hosts hosts, Clock::time_point now);

    // The session's host; null when none has a slot.
    const Host* host_of(std::uint64_t session, bool starts_speech, Clock::time_point now);

    void forget(std::uint64_t session) { pins_.erase(session); }

    [[nodiscard]] std::size_t sessions() const noexcept { return pins_.size(); }
    // Sessions that had to change their host.
    [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

private:
    static constexpr std::size_t kNone = ~std::size_t{0};
    struct Pin {
        std::size_t host = kNone;  // index into hosts_
        Clock::time_point used{};
    };

    [[nodiscard]] std::size_t best() const noexcept;

    Hosts hosts_ = std::make_shared<const std::vector<Host>>();
    std::vector<std::uint32_t> free_slots_;  // of each host, less those taken since the last update
    std::unordered_map<std::uint64_t, Pin> pins_;
    std::uint64_t moves_ = 0;
};

}  // namespace voice::ship
