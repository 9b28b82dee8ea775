// The sessions of the data plane: admission opens and closes them here, and every poller is told.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "admission/gate.hpp"
#include "pipeline/poller.hpp"
#include "pipeline/slot.hpp"
#include "support/huge_pages.hpp"

namespace voice::pipeline {

// What it overrides is the admission thread's.
class SessionSlots final : public admission::Sessions {
public:
    SessionSlots(std::size_t sessions, voice_chunk_kind kind);

    // Before the pollers start.
    void tell(Poller& poller) { pollers_.push_back(&poller); }
    [[nodiscard]] std::span<Slot> slots() noexcept { return slots_; }

    std::optional<std::uint32_t> open(std::uint32_t ssrc, const admission::SessionRecord& record) override;
    void update(std::uint32_t ssrc, const admission::SessionRecord& record) override;
    void close(std::uint32_t ssrc) override;
    void each(const std::function<void(const Session&)>& callback) override;

    // Any thread.
    [[nodiscard]] std::uint64_t sessions() const noexcept { return open_; }

private:
    void reclaim() noexcept;
    // True when every poller has room for a command, so that none is told alone.
    [[nodiscard]] bool can_tell() noexcept;
    void tell_all(const Command& command) noexcept;

    std::vector<Slot, HugeAllocator<Slot>> slots_;
    voice_chunk_kind kind_;
    std::vector<Poller*> pollers_;
    std::vector<std::uint32_t> free_;
    std::deque<std::uint32_t> closing_;  // told to every poller, not forgotten by all yet
    std::deque<std::uint32_t> to_close_;  // SSRCs that no poller had room to be told of
    std::unordered_map<std::uint32_t, std::uint32_t> open_slots_;
    std::atomic<std::uint64_t> open_{0};
};

}  // namespace voice::pipeline
