// Copies changes of the session tables to the state store, once a second. The hash `shipped:<ssrc>` gets
//
//   chunks         chunks made of the session's speech
//   last_sequence  of the last chunk; absent before the first chunk
//   seen_at        seconds since 1970 (UTC) of the last packet
//   begins_at      RTP timestamp of the session's first frame, for external sessions; gateways write their own
//   wrong_payload  packets that do not match `media`; absent before the first one
//
// It expires with the session's record, which this tier can read but not write.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "state/session_state.hpp"
#include "state/session_table.hpp"
#include "valkey/client.hpp"

namespace voice::state {

class WriteBehind {
public:
    static constexpr std::size_t kBatch = 256;  // sessions that share a round trip
    static constexpr std::chrono::seconds kShortestLifetime{60};

    // Written by its thread, read by any.
    struct Counters {
        std::atomic<std::uint64_t> written{0};
        std::atomic<std::uint64_t> gone{0};        // rows whose session's record has expired
        std::atomic<std::uint64_t> unanswered{0};  // rounds without the state store, or refused; repeated a second later
    };

    WriteBehind(std::chrono::milliseconds every, valkey::Endpoint store,
                const std::vector<const SessionTable*>& tables);
    WriteBehind(const WriteBehind&) = delete;
    WriteBehind& operator=(const WriteBehind&) = delete;
    ~WriteBehind() { stop(); }

    void start();
    // Stops after a last round.
    void stop();

    // One round. start() repeats it.
    void pass();

    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }

private:
    struct Row {
        std::uint64_t chunks = 0;
        std::uint32_t last_sequence = 0;
        std::int64_t seen_at = 0;
        std::optional<std::uint32_t> origin;
        std::uint64_t wrong_payload = 0;
        bool operator==(const Row&) const = default;
    };
    using Rows = std::unordered_map<std::uint32_t, Row>;

    void run();
    [[nodiscard]] Rows rows() const;
    bool write(std::vector<std::pair<std::uint32_t, Row>>& batch);
    void append(std::uint32_t ssrc, const Row& row, std::chrono::seconds lifetime);

    std::chrono::milliseconds every_;
    valkey::Client store_;
    std::vector<SessionTableReader> tables_;
    Rows written_;
    std::mutex mutex_;
    std::condition_variable wake_;
    bool stopping_ = false;
    std::thread thread_;
    Counters counters_;
};

}  // namespace voice::state
