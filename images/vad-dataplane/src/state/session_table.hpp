// Hot state of sessions in shared memory: 64 bytes each, one writer, any number of readers in other threads and
// processes, without locks. The durable copy is in Valkey; this one is for readers that cannot wait for the network.
//
// Placement is open addressing, linear, at most half full. Later entries move into the place of an erased one:
// tombstones would accumulate until a search for an unknown session visits the whole table.
//
// Every entry has a sequence lock: odd while the writer modifies it. Words are atomics, so a concurrent reader sees a
// mixture of words, which is well defined, and detects it. `moves` does the same for the placement: odd while entries
// move. A failed search is repeated if `moves` has changed; a successful one need not check it.
//
// Why each memory order, for either number:
// - The writer stores the odd number relaxed and then each word with release; the reader loads each word with acquire
//   and then the number again. A reader that saw a new word therefore sees a number at least as new as the odd one
//   before it, and does not take the words for whole.
// - The writer stores the even number with release; the reader's first load of it is acquire. A reader that saw that
//   number sees no word older than it.
// - No fences: the orders above are enough, cost nothing on x86 (ldapr and stlr on arm64), and ThreadSanitizer knows
//   them.
//
// A writer that dies at work leaves an odd number behind. Readers give up after kSpins tries (kTorn) and ask Valkey;
// the next writer puts the table in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "state/mapping.hpp"

namespace voice::state {

using ValueIn = std::span<const std::byte, kValueBytes>;
using ValueOut = std::span<std::byte, kValueBytes>;

// Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host share. Allocates nothing after construction.
class SessionTable {
public:
    enum class Stored { kInserted, kUpdated, kFull };

    // Creates the table if necessary; entries that a dead writer left unfinished are erased. Throws std::runtime_error.
    SessionTable(const std::string& path, std::uint32_t sessions);

    // Stores a value that readers see until `expires_ns`. kFull: the table is full; nothing was stored, and expire()
    // may make room.
    Stored put(std::uint64_t session, ValueIn value, std::uint64_t expires_ns) noexcept;

    // False if the table does not have the session.
    bool erase(std::uint64_t session) noexcept;

    // Erases expired sessions among the next `looks` slots, and returns their number; the next call continues there.
    std::size_t expire(std::uint64_t now_ns, std::size_t looks) noexcept;

    // Sessions that occupy slots; expired ones do until expire() reaches them.
    [[nodiscard]] std::size_t size() const noexcept { return held_; }
    [[nodiscard]] std::size_t slots() const noexcept { return entries_.size(); }

private:
    friend class SessionTableReader;

    void recover();
    [[nodiscard]] std::size_t find(std::uint64_t session) const noexcept;
    void erase_at(std::size_t slot) noexcept;

    Mapping mapping_;
    std::span<Entry> entries_;
    std::size_t held_ = 0;
    std::size_t cursor_ = 0;
};

class SessionTableReader {
public:
    static constexpr int kSpins = 1000;  // attempts; a write takes a tenth of a microsecond

    enum class Found {
        kYes,
        kNo,    // unknown or expired
        kTorn,  // undecided: the writer has stopped during a write, preempted or dead
    };

    // Throws std::runtime_error if there is no table, or one of another version.
    explicit SessionTableReader(const std::string& path);

    // For threads of the writer's process; must not outlive the table.
    explicit SessionTableReader(const SessionTable& table) noexcept
        : control_(&table.mapping_.control()), entries_(table.entries_) {}

    // Copies the session's consistent value to `out`; `out` is undefined unless the result is kYes.
    Found read(std::uint64_t session, std::uint64_t now_ns, ValueOut out) const noexcept;

    // For tools: the raw table. Entries may be inconsistent while the writer works.
    [[nodiscard]] std::span<const Entry> entries() const noexcept { return entries_; }

private:
    Found search(std::uint64_t session, std::uint64_t now_ns, ValueOut out) const noexcept;

    std::optional<Mapping> mapping_;
    const Control* control_;
    std::span<const Entry> entries_;
};

}  // namespace voice::state
