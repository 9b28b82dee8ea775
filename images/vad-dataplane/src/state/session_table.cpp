#include "state/session_table.hpp"

#include <array>
#include <cstring>
#include <vector>

namespace voice::state {
namespace {

// Only the writer changes a table, so its own loads need no order.
constexpr auto kOwn = std::memory_order_relaxed;

bool is_odd(std::uint64_t number) noexcept { return (number & 1U) != 0; }

bool is_held(const Entry& entry) noexcept { return entry.held.load(kOwn) != 0; }

// Keeps a number odd during its lifetime.
class Writing {
public:
    explicit Writing(Word& number) noexcept : number_(number), odd_(number.load(kOwn) | 1U) {
        number_.store(odd_, std::memory_order_relaxed);
    }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;
    ~Writing() { number_.store(odd_ + 1, std::memory_order_release); }

private:
    Word& number_;
    std::uint64_t odd_;
};

void write(Entry& entry, std::uint64_t session, ValueIn value, std::uint64_t expires_ns) noexcept {
    const Writing writing(entry.sequence);
    entry.key.store(session, std::memory_order_release);
    entry.expires_ns.store(expires_ns, std::memory_order_release);
    for (std::size_t i = 0; i < kValueWords; ++i) {
        std::uint64_t word = 0;
        std::memcpy(&word, &value[i * sizeof word], sizeof word);
        entry.value[i].store(word, std::memory_order_release);
    }
    entry.held.store(1, std::memory_order_release);
}

void copy_value(const Entry& entry, ValueOut out) noexcept {
    for (std::size_t i = 0; i < kValueWords; ++i) {
        const std::uint64_t word = entry.value[i].load(std::memory_order_acquire);
        std::memcpy(&out[i * sizeof word], &word, sizeof word);
    }
}

void move_entry(const Entry& from, Entry& to) noexcept {
    std::array<std::byte, kValueBytes> value;
    copy_value(from, value);
    write(to, from.key.load(kOwn), value, from.expires_ns.load(kOwn));
}

void clear(Entry& entry) noexcept {
    const Writing writing(entry.sequence);
    entry.held.store(0, std::memory_order_release);
}

}  // namespace

SessionTable::SessionTable(const std::string& path, std::uint32_t sessions)
    : mapping_(Mapping::open_to_write(path, sessions)), entries_(mapping_.entries()) {
    recover();
}

// A dead writer may have left one entry unfinished, and one duplicated or unreachable: all are placed again.
void SessionTable::recover() {
    struct Saved {
        std::uint64_t key;
        std::uint64_t expires_ns;
        std::array<std::byte, kValueBytes> value;
    };
    bool in_order = !is_odd(mapping_.control().moves.load(kOwn));
    for (const Entry& entry : entries_) {
        held_ += is_held(entry) ? 1 : 0;
        in_order = in_order && !is_odd(entry.sequence.load(kOwn));
    }
    if (in_order) {
        return;
    }
    const Writing moves(mapping_.control().moves);
    std::vector<Saved> whole;
    for (Entry& entry : entries_) {
        if (is_held(entry) && !is_odd(entry.sequence.load(kOwn))) {
            Saved& saved = whole.emplace_back();
            saved.key = entry.key.load(kOwn);
            saved.expires_ns = entry.expires_ns.load(kOwn);
            copy_value(entry, saved.value);
        }
        clear(entry);
    }
    held_ = 0;
    for (const Saved& saved : whole) {
        put(saved.key, saved.value, saved.expires_ns);
    }
}

// The slot of the session, or the free one where it would be placed. One always exists: half of them are free.
std::size_t SessionTable::find(std::uint64_t session) const noexcept {
    std::size_t slot = home(session, entries_.size());
    while (is_held(entries_[slot]) && entries_[slot].key.load(kOwn) != session) {
        slot = next(slot, entries_.size());
    }
    return slot;
}

SessionTable::Stored SessionTable::put(std::uint64_t session, ValueIn value, std::uint64_t expires_ns) noexcept {
    Entry& entry = entries_[find(session)];
    const bool is_new = !is_held(entry);
    if (is_new && held_ == mapping_.header().sessions) {
        return Stored::kFull;
    }
    held_ += is_new ? 1 : 0;
    write(entry, session, value, expires_ns);
    return is_new ? Stored::kInserted : Stored::kUpdated;
}

bool SessionTable::erase(std::uint64_t session) noexcept {
    const std::size_t slot = find(session);
    if (!is_held(entries_[slot])) {
        return false;
    }
    erase_at(slot);
    return true;
}

// Fills the hole with the next entry whose search passes it, which leaves another hole, until a free slot ends the
// search.
void SessionTable::erase_at(std::size_t slot) noexcept {
    const Writing moves(mapping_.control().moves);
    const std::size_t last = entries_.size() - 1;
    std::size_t hole = slot;
    for (std::size_t at = next(slot, entries_.size()); is_held(entries_[at]); at = next(at, entries_.size())) {
        const std::size_t wanted = home(entries_[at].key.load(kOwn), entries_.size());
        // Distances to `at`, backwards around the table: the search for this entry begins at `wanted`.
        if (((at - wanted) & last) >= ((at - hole) & last)) {
            move_entry(entries_[at], entries_[hole]);
            hole = at;
        }
    }
    clear(entries_[hole]);
    --held_;
}

std::size_t SessionTable::expire(std::uint64_t now_ns, std::size_t looks) noexcept {
    std::size_t erased = 0;
    for (std::size_t i = 0; i < looks; ++i) {
        const Entry& entry = entries_[cursor_];
        if (is_held(entry) && entry.expires_ns.load(kOwn) <= now_ns) {
            erase_at(cursor_);  // another entry may be here now: check again
            ++erased;
        } else {
            cursor_ = next(cursor_, entries_.size());
        }
    }
    return erased;
}

SessionTableReader::SessionTableReader(const std::string& path)
    : mapping_(Mapping::open_to_read(path)), control_(&mapping_->control()), entries_(mapping_->entries()) {}

SessionTableReader::Found SessionTableReader::read(std::uint64_t session, std::uint64_t now_ns,
                                                   ValueOut out) const noexcept {
    for (int spin = 0; spin < kSpins; ++spin) {
        const std::uint64_t moves = control_->moves.load(std::memory_order_acquire);
        const Found found = search(session, now_ns, out);
        if (found == Found::kYes || (found == Found::kNo && !is_odd(moves) &&
                                     control_->moves.load(std::memory_order_relaxed) == moves)) {
            return found;
        }
    }
    return Found::kTorn;
}

// One attempt; kTorn if the session's entry changed meanwhile.
SessionTableReader::Found SessionTableReader::search(std::uint64_t session, std::uint64_t now_ns,
                                                     ValueOut out) const noexcept {
    std::size_t slot = home(session, entries_.size());
    // Counted: while entries move, a search may pass every slot.
    for (std::size_t tried = 0; tried < entries_.size(); ++tried, slot = next(slot, entries_.size())) {
        const Entry& entry = entries_[slot];
        const std::uint64_t sequence = entry.sequence.load(std::memory_order_acquire);
        if (entry.held.load(std::memory_order_acquire) == 0) {
            return Found::kNo;
        }
        if (entry.key.load(std::memory_order_acquire) != session) {
            continue;
        }
        const std::uint64_t expires_ns = entry.expires_ns.load(std::memory_order_acquire);
        copy_value(entry, out);
        if (is_odd(sequence) || entry.sequence.load(std::memory_order_relaxed) != sequence) {
            return Found::kTorn;
        }
        return expires_ns > now_ns ? Found::kYes : Found::kNo;
    }
    return Found::kNo;
}

}  // namespace voice::state
