// Maps SSRCs to slots for one thread: open addressing in preallocated memory.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace voice::pipeline {

inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

class SessionMap {
public:
    // Half of its places stay empty, which keeps probes short.
    explicit SessionMap(std::size_t sessions) : places_(std::bit_ceil(2 * sessions + 2)), mask_(places_.size() - 1) {}

    [[nodiscard]] std::uint32_t find(std::uint32_t ssrc) const noexcept {
        for (std::size_t at = home(ssrc);; at = (at + 1) & mask_) {
            if (places_[at].slot == kNoSlot || places_[at].ssrc == ssrc) {
                return places_[at].slot;
            }
        }
    }

    void put(std::uint32_t ssrc, std::uint32_t slot) noexcept {
        std::size_t at = home(ssrc);
        while (places_[at].slot != kNoSlot && places_[at].ssrc != ssrc) {
            at = (at + 1) & mask_;
        }
        places_[at] = {ssrc, slot};
    }

    void erase(std::uint32_t ssrc) noexcept {
        std::size_t at = home(ssrc);
        while (places_[at].slot != kNoSlot && places_[at].ssrc != ssrc) {
            at = (at + 1) & mask_;
        }
        if (places_[at].slot == kNoSlot) {
            return;
        }
        // Entries displaced past this place move back, so that no search ends early and no tombstone is needed.
        for (std::size_t next = (at + 1) & mask_; places_[next].slot != kNoSlot; next = (next + 1) & mask_) {
            if (((next - home(places_[next].ssrc)) & mask_) >= ((next - at) & mask_)) {
                places_[at] = places_[next];
                at = next;
            }
        }
        places_[at].slot = kNoSlot;
    }

private:
    struct Place {
        std::uint32_t ssrc = 0;
        std::uint32_t slot = kNoSlot;
    };

    // SSRCs are meant to be random, but senders may choose them.
    [[nodiscard]] std::size_t home(std::uint32_t ssrc) const noexcept {
        return static_cast<std::size_t>((ssrc * 0x9e3779b97f4a7c15ULL) >> 32) & mask_;
    }

    std::vector<Place> places_;
    std::size_t mask_;
};

}  // namespace voice::pipeline
