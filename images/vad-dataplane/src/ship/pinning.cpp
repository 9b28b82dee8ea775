#include "ship/pinning.hpp"

#include <utility>

namespace voice::ship {

void Pinning::update(Hosts hosts, Clock::time_point now) {
    std::unordered_map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < hosts->size(); ++i) {
        places.emplace((*hosts)[i].id, i);
    }
    for (auto at = pins_.begin(); at != pins_.end();) {
        auto& pin = at->second;
        if (now - pin.used >= kIdle) {
            at = pins_.erase(at);
            continue;
        }
        if (pin.host != kNone) {
            const auto place = places.find((*hosts_)[pin.host].id);
            pin.host = place == places.end() ? kNone : place->second;
        }
        ++at;
    }
    hosts_ = std::move(hosts);
    free_slots_.clear();
    for (const auto& host : *hosts_) {
        free_slots_.push_back(host.free_slots);
    }
}

const Host* Pinning::host_of(std::uint64_t session, bool starts_speech, Clock::time_point now) {
    const auto [at, is_new] = pins_.try_emplace(session);
    auto& pin = at->second;
    const bool stays = pin.host != kNone && !((*hosts_)[pin.host].draining && starts_speech);
    if (!stays) {
        const auto found = best();
        if (found != kNone) {
            --free_slots_[found];
            moves_ += is_new ? 0 : 1;
            pin.host = found;
        } else if (pin.host == kNone) {
            pins_.erase(at);
            return nullptr;
        }
        // With nowhere else to go, a draining host is better than none.
    }
    pin.used = now;
    return &(*hosts_)[pin.host];
}

std::size_t Pinning::best() const noexcept {
    std::size_t best = kNone;
    for (std::size_t i = 0; i < hosts_->size(); ++i) {
        const auto& host = (*hosts_)[i];
        if (host.draining || free_slots_[i] == 0) {
            continue;
        }
        const bool better = best == kNone || host.kind < (*hosts_)[best].kind ||
                            (host.kind == (*hosts_)[best].kind && free_slots_[i] > free_slots_[best]);
        best = better ? i : best;
    }
    return best;
}

}  // namespace voice::ship
