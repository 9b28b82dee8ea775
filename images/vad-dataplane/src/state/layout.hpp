// Layout of the file of a session table: a header, a control block, a power of two of entries. Both sides map it, so
// every mutable field is a lock-free atomic, and there are no pointers.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace voice::state {

inline constexpr std::size_t kValueBytes = 64;
inline constexpr std::size_t kValueWords = kValueBytes / sizeof(std::uint64_t);

inline constexpr std::uint64_t kMagic = 0x5345'5345'4349'4f56;  // "VOICESES", read as a little-endian number
inline constexpr std::uint32_t kVersion = 1;  // of this header, of Entry and of the reading protocol

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free, "a lock would belong to one process");

struct Header {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t value_bytes;
    std::uint32_t entry_bytes;
    std::uint32_t slots;
    std::uint32_t sessions;  // capacity; half of the slots at most, so that searches stay short
    std::array<std::uint8_t, 36> reserved;
};
static_assert(sizeof(Header) == 64);

struct alignas(64) Control {
    Word moves;  // odd while the writer moves entries: a failed search may then have missed one
    std::array<std::uint64_t, 7> reserved;
};

// A sequence lock: odd while the writer modifies the entry. See session_table.hpp for the memory orders.
struct alignas(64) Entry {
    Word sequence;
    Word held;  // 1 if the slot holds a session
    Word key;
    Word expires_ns;
    std::array<std::uint64_t, 4> reserved;
    std::array<Word, kValueWords> value;
};
static_assert(sizeof(Entry) == 64 + kValueBytes);

// The first slot of a key's search: the top bits of a product with 2^64 / golden ratio, which spreads consecutive keys.
inline std::size_t home(std::uint64_t key, std::size_t slots) noexcept {
    constexpr std::uint64_t golden = 0x9e37'79b9'7f4a'7c15;
    const std::uint64_t mixed = (key ^ (key >> 32U)) * golden;
    return static_cast<std::size_t>(mixed >> 32U) & (slots - 1);
}

inline std::size_t next(std::size_t slot, std::size_t slots) noexcept { return (slot + 1) & (slots - 1); }

}  // namespace voice::state
