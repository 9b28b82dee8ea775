// What the XDP program does where there is none: asks about unknown senders, blocks those that are refused.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "admission/request_queue.hpp"
#include "pipeline/session_slots.hpp"

namespace voice::pipeline {

class UserGate final : public admission::Gate, public UnknownSenders {
public:
    UserGate(admission::RequestQueue& requests, SessionSlots& sessions) noexcept
        : requests_(requests), sessions_(sessions) {}

    // Pollers. Asks once a second about a sender; takes a lock to do so.
    control::DropReason on_packet(std::uint32_t ssrc) noexcept override;

    // Admission. Pollers know their sessions by themselves.
    bool admit(std::uint32_t) override { return true; }
    bool block(std::uint32_t ssrc) override;
    bool remove(std::uint32_t ssrc) override;
    void each(const std::function<void(const Session&)>& callback) override;

private:
    static constexpr std::size_t kPlaces = 8192;
    static constexpr std::uint32_t kAskEveryS = 1;

    // One place a hash: a collision asks about a sender more often than once a second, or forgets that one was refused.
    using Table = std::array<std::atomic<std::uint64_t>, kPlaces>;  // SSRC above, second of the steady clock below
    static std::atomic<std::uint64_t>& place(Table& table, std::uint32_t ssrc) noexcept {
        return table[static_cast<std::size_t>((ssrc * 0x9e3779b97f4a7c15ULL) >> 40) % kPlaces];
    }

    admission::RequestQueue& requests_;
    SessionSlots& sessions_;
    Table asked_{};
    Table blocked_{};
};

}  // namespace voice::pipeline
