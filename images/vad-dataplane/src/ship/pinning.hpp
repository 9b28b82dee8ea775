// Which ASR host a session's audio goes to: Neuron hosts before GPUs and those before CPUs, then a host of our own zone,
// since traffic between zones is paid for, then the host with the most free slots. A session stays where it is, since
// its host holds what was said before. It moves when the host is lost, which is to say that it
// has died or refuses datagrams, and when the host drains, at the next start of speech, so that no utterance is torn. A
// host that was draining when it left has finished what it had: it is not lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ship/host.hpp"

namespace voice::ship {

// Used by one thread.
class Pinning {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kIdle{120};  // without a chunk, a session gives its slot back
    static constexpr unsigned kRefusals = 3;           // datagrams refused within kAvoid: nobody listens there
    static constexpr std::chrono::seconds kAvoid{3};   // how long a host that refuses is left alone

    // `zone`: where this host is; empty where nobody has told it, and then all zones are alike.
    explicit Pinning(std::string zone = {}) : zone_(std::move(zone)) {}

    // Takes a new reading of the registry; true when a host was lost. Slots that sessions have taken since the reading
    // before are in it already, or will be in the next: meanwhile a host is at worst offered a few sessions too many.
    bool update(Hosts hosts, Clock::time_point now);

    // The host refused a datagram; true when that makes it a lost one.
    bool refused(const sockaddr_in& address, Clock::time_point now);

    // The session's host; null when none has a slot.
    const Host* host_of(std::uint64_t session, bool starts_speech, Clock::time_point now);

    // What its chunks are marked with: a host that was lost and comes back has another number. More than 1.
    [[nodiscard]] std::uint32_t number_of(const Host& host) const noexcept {
        return offers_[static_cast<std::size_t>(&host - hosts_->data())].number;
    }
    [[nodiscard]] bool is_lost(std::uint32_t number) const noexcept { return lost_[number]; }

    // Whether the session's host was lost, and what it had is not all sent again yet: until settle().
    [[nodiscard]] bool is_moving(std::uint64_t session) const noexcept;
    void settle() noexcept;

    void forget(std::uint64_t session) { pins_.erase(session); }

    [[nodiscard]] std::size_t sessions() const noexcept { return pins_.size(); }
    // Sessions that had to change their host.
    [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

private:
    static constexpr std::size_t kNone = ~std::size_t{0};
    struct Pin {
        std::size_t host = kNone;  // index into hosts_
        bool moving = false;
        Clock::time_point used{};
    };
    // What is known of a host beyond its record.
    struct Offer {
        std::uint32_t number = 0;
        bool near = false;  // in our zone
        std::uint32_t free_slots = 0;  // less those taken since the last update
        unsigned refusals = 0;
        Clock::time_point refused_since{};
        Clock::time_point avoid_until{};
    };

    [[nodiscard]] bool are_the_same(const std::vector<Host>& hosts) const noexcept;
    bool replace(const std::vector<Host>& hosts);
    [[nodiscard]] std::uint32_t new_number();
    [[nodiscard]] std::size_t best(Clock::time_point now) const noexcept;

    std::string zone_;
    Hosts hosts_ = std::make_shared<const std::vector<Host>>();
    std::vector<Offer> offers_;  // of each host
    std::vector<bool> lost_{false, false};  // by number
    std::unordered_map<std::uint64_t, Pin> pins_;
    std::uint64_t moves_ = 0;
};

}  // namespace voice::ship
