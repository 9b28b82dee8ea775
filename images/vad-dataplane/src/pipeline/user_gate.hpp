// What the XDP program does where there is none: asks about unknown senders, blocks those that are refused.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "admission/request_queue.hpp"
#include "pipeline/poller.hpp"
#include "xdp/steer.h"

namespace voice::pipeline {

class UserGate final : public admission::Gate, public Senders {
public:
    // `per_s`: unknown senders that are asked about.
    UserGate(admission::RequestQueue& requests, unsigned per_s) noexcept : requests_(requests), per_s_(per_s) {}

    // Pollers. Asks once a second about a sender; takes a lock to do so.
    control::DropReason on_unknown(std::uint32_t ssrc, std::int64_t now_ns) noexcept override;

    // Admission. Pollers know their sessions by themselves.
    bool admit(std::uint32_t, std::uint32_t) override { return true; }
    bool block(std::uint32_t ssrc) override;
    bool remove(std::uint32_t ssrc) override;

private:
    static constexpr std::size_t kPlaces = 8192;
    static constexpr std::uint32_t kAskEveryS = 1;

    // One place a hash: a collision asks about a sender more often than once a second, or forgets that one was refused.
    using Table = std::array<std::atomic<std::uint64_t>, kPlaces>;  // SSRC above, a second of the steady clock below
    static std::atomic<std::uint64_t>& place(Table& table, std::uint32_t ssrc) noexcept {
        return table[static_cast<std::size_t>((ssrc * 0x9e3779b97f4a7c15ULL) >> 40) % kPlaces];
    }

    admission::RequestQueue& requests_;
    unsigned per_s_;
    std::atomic<__u64> paid_ns_{0};  // voice_allow() of all pollers
    Table asked_{};
    Table blocked_{};
};

}  // namespace voice::pipeline
