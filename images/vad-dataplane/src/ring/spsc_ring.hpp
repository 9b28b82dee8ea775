// A bounded queue between one producer thread and one consumer thread, without locks and without copies: both sides
// work on the slot in place.
//
// Each side has a position, which the other reads, and a copy of the other's as it last saw it. It looks again only when
// the copy shows nothing free, or nothing new: as a rule once in many messages.
//
// Why each memory order:
// - commit() stores the producer's position with release, peek() loads it with acquire: the consumer that sees it sees
//   the bytes of the messages before it.
// - release() stores the consumer's position with release, claim() loads it with acquire: the producer that sees it knows
//   that the consumer's reads of the old messages are over; without it a new message could overwrite one that is being
//   read.
// - Each side reads its own position relaxed: nobody else writes it. occupancy() reads both relaxed: any recent value
//   will do.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace voice {

// The line size of Graviton4 and of x86; std::hardware_destructive_interference_size is 256 on some arm64 compilers,
// which would only waste memory, and it may differ between two translation units.
inline constexpr std::size_t kCacheLineBytes = 64;

// The memory orders of the hand-over. Tests replace them with relaxed ones to show that they would notice.
struct AcquireRelease {
    static constexpr std::memory_order kTake = std::memory_order_acquire;
    static constexpr std::memory_order kGive = std::memory_order_release;
};

template <typename T, std::size_t Slots, typename Orders = AcquireRelease>
class SpscRing {
    static_assert(std::has_single_bit(Slots), "the number of slots has to be a power of two");
    static_assert(std::is_trivially_destructible_v<T>, "a slot is reused without destroying what it holds");

public:
    static constexpr std::size_t kSlots = Slots;

    SpscRing() noexcept = default;
    SpscRing(const SpscRing&) = delete;
    SpscRing& operator=(const SpscRing&) = delete;

    // Producer: returns the slot of the next message, or null while the ring is full. Claiming again before commit()
    // returns the same slot.
    [[nodiscard]] T* claim() noexcept {
        const std::uint64_t next = written_.load(std::memory_order_relaxed);
        if (next == free_until_) {
            free_until_ = read_.load(Orders::kTake) + Slots;
        }
        return next == free_until_ ? nullptr : &slots_[next & kMask].value;
    }

    // Producer: publishes the claimed slot.
    void commit() noexcept {
        const std::uint64_t next = written_.load(std::memory_order_relaxed);
        assert(next < free_until_ && "commit() without a claimed slot");
        written_.store(next + 1, Orders::kGive);
    }

    // Consumer: returns the oldest message, or the one that is `ahead` places behind it; null where there is none yet.
    // It stays valid until it is released.
    [[nodiscard]] T* peek(std::size_t ahead = 0) noexcept {
        const std::uint64_t wanted = read_.load(std::memory_order_relaxed) + ahead;
        if (wanted >= ready_until_) {
            ready_until_ = written_.load(Orders::kTake);
        }
        return wanted < ready_until_ ? &slots_[wanted & kMask].value : nullptr;
    }

    // Consumer: hands the slots of the oldest messages back.
    void release(std::size_t count = 1) noexcept {
        const std::uint64_t next = read_.load(std::memory_order_relaxed) + count;
        assert(next <= ready_until_ && "release() without a message");
        read_.store(next, Orders::kGive);
    }

    // Any thread: messages in the ring a moment ago, 0 to Slots.
    [[nodiscard]] std::size_t occupancy() const noexcept {
        const std::uint64_t read = read_.load(std::memory_order_relaxed);
        const std::uint64_t written = written_.load(std::memory_order_relaxed);
        // The two loads are not one: the consumer may have passed the `written` that is read after it.
        const std::uint64_t between = written > read ? written - read : 0;
        return between < Slots ? static_cast<std::size_t>(between) : Slots;
    }

private:
    static constexpr std::uint64_t kMask = Slots - 1;

    struct alignas(kCacheLineBytes) Slot {
        T value;
    };

    // Each side has a line of its own, or the two threads would take it from each other at every message.
    alignas(kCacheLineBytes) std::atomic<std::uint64_t> written_{0};
    std::uint64_t free_until_ = Slots;  // the producer's: no message from this one on has a free slot, as far as it knows
    alignas(kCacheLineBytes) std::atomic<std::uint64_t> read_{0};
    std::uint64_t ready_until_ = 0;  // the consumer's: likewise, none from this one on has come
    alignas(kCacheLineBytes) std::array<Slot, Slots> slots_;
};

}  // namespace voice
