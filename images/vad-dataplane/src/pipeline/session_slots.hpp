// The sessions of the data plane: admission opens and closes them here, which notifies every poller.
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

// The overrides are called on the admission thread.
class SessionSlots final : public admission::Sessions {
public:
    SessionSlots(std::size_t sessions, voice_chunk_kind kind);

    // Called before the pollers start.
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
    // True if every poller has room for a command, so that all or none receive it.
    [[nodiscard]] bool can_tell() noexcept;
    void tell_all(const Command& command) noexcept;

    std::vector<Slot, HugeAllocator<Slot>> slots_;
    voice_chunk_kind kind_;
    std::vector<Poller*> pollers_;
    std::vector<std::uint32_t> free_;
    std::deque<std::uint32_t> closing_;  // closed for every poller, not yet forgotten by all
    std::deque<std::uint32_t> to_close_;  // SSRCs whose close command did not fit a poller's queue
    // The session's record as last read, and the part that the owner has applied: several changes may wait for a
    // packet.
    struct Terms {
        std::optional<srtp::Key> key;
        srtp::Suite suite;
        media::Description media;

        bool operator==(const Terms&) const = default;
    };
    struct Open {
        std::uint32_t at;
        Terms taken;
        Terms offered;
    };
    static Terms terms_of(const admission::SessionRecord& record) {
        return {record.srtp_key, record.srtp_suite, record.media};
    }
    std::unordered_map<std::uint32_t, Open> open_slots_;
    std::atomic<std::uint64_t> open_{0};
};

}  // namespace voice::pipeline
