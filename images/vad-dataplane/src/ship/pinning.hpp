// Chooses a session's ASR host: Neuron hosts before GPUs before CPUs, then a host in our own zone, because traffic
// between zones costs money, then the host with the most free slots. A session keeps its host, which holds the earlier
// audio. It moves when the host is lost, that is, has died or refuses datagrams, and, if the host drains, at the next
// start of speech, so that no utterance is split. A draining host that leaves has finished its work: it is not lost.
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
    static constexpr std::chrono::seconds kIdle{120};  // a session without chunks for this long releases its slot
    static constexpr unsigned kRefusals = 3;           // datagrams refused within kAvoid: nobody listens there
    static constexpr std::chrono::seconds kAvoid{3};   // how long a refusing host is avoided

    // `zone`: this host's zone; if empty, all zones are equal.
    explicit Pinning(std::string zone = {}) : zone_(std::move(zone)) {}

    // Takes a new reading of the registry; true if a host was lost. Slots taken since the previous reading are in this
    // or the next one: until then a host may be offered a few sessions too many.
    bool update(Hosts hosts, Clock::time_point now);

    // The host refused a datagram; true if it is therefore lost.
    bool refused(const sockaddr_in& address, Clock::time_point now);

    // The session's host; null if none has a slot.
    const Host* host_of(std::uint64_t session, bool starts_speech, Clock::time_point now);

    // The number that marks its chunks: a host that was lost and returns gets another one. More than 1.
    [[nodiscard]] std::uint32_t number_of(const Host& host) const noexcept {
        return offers_[static_cast<std::size_t>(&host - hosts_->data())].number;
    }
    [[nodiscard]] bool is_lost(std::uint32_t number) const noexcept { return lost_[number]; }

    // Whether the session's host was lost and its chunks have not all been sent again: until settle().
    [[nodiscard]] bool is_moving(std::uint64_t session) const noexcept;
    void settle() noexcept;

    void forget(std::uint64_t session) { pins_.erase(session); }

    [[nodiscard]] std::size_t sessions() const noexcept { return pins_.size(); }
    // Sessions that had to change hosts.
    [[nodiscard]] std::uint64_t moves() const noexcept { return moves_; }

private:
    static constexpr std::size_t kNone = ~std::size_t{0};
    struct Pin {
        std::size_t host = kNone;  // index into hosts_
        bool moving = false;
        Clock::time_point used{};
    };
    // State of a host beyond its record.
    struct Offer {
        std::uint32_t number = 0;
        bool near = false;  // in our zone
        std::uint32_t free_slots = 0;  // minus those taken since the last update
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
