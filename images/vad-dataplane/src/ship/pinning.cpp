#include "ship/pinning.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace voice::ship {

bool Pinning::update(Hosts hosts, Clock::time_point now) {
    std::erase_if(pins_, [&](const auto& each) { return now - each.second.used >= kIdle; });
    const bool any_lost = !are_the_same(*hosts) && replace(*hosts);
    hosts_ = std::move(hosts);
    for (std::size_t i = 0; i < offers_.size(); ++i) {
        offers_[i].near = !zone_.empty() && (*hosts_)[i].zone == zone_;
        offers_[i].free_slots = (*hosts_)[i].free_slots;
    }
    return any_lost;
}

bool Pinning::are_the_same(const std::vector<Host>& hosts) const noexcept {
    const auto same = [](const Host& left, const Host& right) { return left.id == right.id; };
    return std::equal(hosts.begin(), hosts.end(), hosts_->begin(), hosts_->end(), same);
}

// Hosts have changed: pins follow those that stay.
bool Pinning::replace(const std::vector<Host>& hosts) {
    std::unordered_map<std::string_view, std::size_t> places;
    std::vector<Offer> offers(hosts.size());
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        places.emplace(hosts[i].id, i);
    }
    std::vector<std::size_t> now_at(hosts_->size(), kNone);
    bool any_lost = false;
    for (std::size_t i = 0; i < hosts_->size(); ++i) {
        const auto place = places.find((*hosts_)[i].id);
        if (place != places.end()) {
            now_at[i] = place->second;
            offers[place->second] = offers_[i];
        } else if (!(*hosts_)[i].draining) {
            lost_[offers_[i].number] = true;
            any_lost = true;
        }
    }
    for (auto& [session, pin] : pins_) {
        if (pin.host != kNone) {
            pin.moving = pin.moving || lost_[offers_[pin.host].number];
            pin.host = now_at[pin.host];
        }
    }
    for (auto& offer : offers) {
        offer.number = offer.number == 0 ? new_number() : offer.number;
    }
    offers_ = std::move(offers);
    return any_lost;
}

bool Pinning::refused(const sockaddr_in& address, Clock::time_point now) {
    std::size_t at = 0;
    while (at < hosts_->size() && ((*hosts_)[at].address.sin_addr.s_addr != address.sin_addr.s_addr ||
                                   (*hosts_)[at].address.sin_port != address.sin_port)) {
        ++at;
    }
    if (at == hosts_->size()) {
        return false;
    }
    Offer& offer = offers_[at];
    if (now - offer.refused_since >= kAvoid) {
        offer.refusals = 0;
        offer.refused_since = now;
    }
    if (now < offer.avoid_until || ++offer.refusals < kRefusals) {
        return false;  // refusals of datagrams already in flight when the host was lost
    }
    lost_[offer.number] = true;
    offer.number = new_number();
    offer.refusals = 0;
    offer.avoid_until = now + kAvoid;
    for (auto& [session, pin] : pins_) {
        if (pin.host == at) {
            pin.host = kNone;
            pin.moving = true;
        }
    }
    return true;
}

const Host* Pinning::host_of(std::uint64_t session, bool starts_speech, Clock::time_point now) {
    const auto [at, is_new] = pins_.try_emplace(session);
    auto& pin = at->second;
    const bool stays = pin.host != kNone && !((*hosts_)[pin.host].draining && starts_speech);
    if (!stays) {
        const auto found = best(now);
        if (found != kNone) {
            --offers_[found].free_slots;
            moves_ += is_new ? 0 : 1;
            pin.host = found;
        } else if (pin.host == kNone) {
            if (!pin.moving) {
                pins_.erase(at);
            }
            return nullptr;
        }
        // A draining host is better than none.
    }
    pin.used = now;
    return &(*hosts_)[pin.host];
}

bool Pinning::is_moving(std::uint64_t session) const noexcept {
    const auto found = pins_.find(session);
    return found != pins_.end() && found->second.moving;
}

void Pinning::settle() noexcept {
    for (auto& [session, pin] : pins_) {
        pin.moving = false;
    }
}

std::uint32_t Pinning::new_number() {
    lost_.push_back(false);
    return static_cast<std::uint32_t>(lost_.size() - 1);
}

std::size_t Pinning::best(Clock::time_point now) const noexcept {
    std::size_t best = kNone;
    for (std::size_t i = 0; i < hosts_->size(); ++i) {
        const auto& host = (*hosts_)[i];
        if (host.draining || offers_[i].free_slots == 0 || now < offers_[i].avoid_until) {
            continue;
        }
        const auto rank = [&](std::size_t at) {
            return std::tuple((*hosts_)[at].kind, !offers_[at].near, ~offers_[at].free_slots);
        };
        best = best == kNone || rank(i) < rank(best) ? i : best;
    }
    return best;
}

}  // namespace voice::ship
