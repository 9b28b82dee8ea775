// A poller that other work keeps from its core: packets that wait meanwhile do not count as silence.
#include "pipeline/poller.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "pipeline/session_slots.hpp"
#include "state/fixture.hpp"

namespace voice::pipeline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kSsrc = 7;

// Packets of silence, one per poll; its thread may pause before one of them.
class Queue {
public:
    static constexpr std::size_t kBatch = receive::kBurst;

    void add(std::uint16_t sequence, std::chrono::nanoseconds away = 0ms) { waiting_.push_back({sequence, away}); }

    template <typename Sink>
    std::size_t poll(Sink&& sink) {
        receive::Burst burst;
        std::vector<std::uint8_t> packet;
        if (!waiting_.empty()) {
            const auto [sequence, away] = waiting_.front();
            waiting_.pop_front();
            std::this_thread::sleep_for(away);
            received_at_ = away > 0ms ? std::chrono::steady_clock::now() : received_at_;
            packet = {0x80, 96, static_cast<std::uint8_t>(sequence >> 8), static_cast<std::uint8_t>(sequence)};
            for (const std::uint32_t word : {sequence * static_cast<std::uint32_t>(rtp::kFrameSamples), kSsrc}) {
                for (int shift = 24; shift >= 0; shift -= 8) {
                    packet.push_back(static_cast<std::uint8_t>(word >> shift));
                }
            }
            packet.resize(rtp::kHeaderBytes + rtp::kFrameBytes);
            burst.add({packet, 1});
        }
        sink(burst.datagrams());
        return packet.empty() ? 0 : 1;
    }

    // When the thread resumed.
    [[nodiscard]] std::chrono::steady_clock::time_point received_at() const { return received_at_; }

private:
    std::chrono::steady_clock::time_point received_at_;
    struct Waiting {
        std::uint16_t sequence;
        std::chrono::nanoseconds away;
    };
    std::deque<Waiting> waiting_;
};

class NobodyUnknown final : public Senders {
    control::DropReason on_unknown(std::uint32_t, std::uint64_t, std::int64_t) noexcept override {
        return control::DropReason::kUnknownSession;
    }
};

struct Outcome {
    std::uint64_t concealed;   // while the poller thread was running again
    std::uint64_t late;        // after that
    std::uint64_t in_silence;  // concealed after some time without packets
};

// Sends 1 to 5 and 7, which the poller's thread takes half a second late, and then 6. Nothing if other work has delayed
// this thread so long that silence was detected.
std::optional<Outcome> overtaken_while_away() {
    Queue queue;
    NobodyUnknown unknown;
    SessionSlots slots(1, VOICE_CHUNK_LOG_MEL);
    const state::TableFile file;
    state::SessionTable table(file.path(), 4);
    QueuePoller<Queue> poller(0U, queue,
                              PollerParts{.index = 0,
                                          .vad = std::make_unique<vad::Instance>(vad::Module::load(VAD_MODULE)),
                                          .table = table,
                                          .keep = 60s,
                                          .packets_per_s = 1000,
                                          .ring_size = 64},
                              slots.slots(), unknown);
    slots.tell(poller);
    const Slot& slot = slots.slots()[slots.open(kSsrc, {}).value()];
    for (std::uint16_t sequence = 1; sequence <= 5; ++sequence) {
        queue.add(sequence);
        poller.pass();
    }
    queue.add(7, SilenceTimer::kAfter + 150ms);
    poller.pass();
    poller.pass();  // the queue is empty
    Outcome found{.concealed = slot.concealed, .late = 0, .in_silence = 0};
    queue.add(6);
    poller.pass();
    if (std::chrono::steady_clock::now() - queue.received_at() > SilenceTimer::kAfter) {
        return std::nullopt;
    }
    found.late = poller.counters().drops[static_cast<std::size_t>(control::DropReason::kLate)];
    queue.add(9);
    poller.pass();
    std::this_thread::sleep_for(SilenceTimer::kAfter + SilenceTimer::kRound);
    poller.pass();
    found.in_silence = slot.concealed;
    return found;
}

TEST(Poller, ThatWasAwayTakesWhatCameMeanwhileForNoSilence) {
    std::optional<Outcome> found;
    while (!found) {
        found = overtaken_while_away();
    }
    EXPECT_EQ(found->concealed, 0U) << "6 was given up";
    EXPECT_EQ(found->late, 0U);
    EXPECT_EQ(found->in_silence, 1U) << "8 never comes";
}

}  // namespace
}  // namespace voice::pipeline
