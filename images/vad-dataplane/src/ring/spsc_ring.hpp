// A bounded queue between one producer thread and one consumer thread, without locks and without copies: both sides
// work on the slot in place.
//
// Each side has a position, which the other reads, and a cached copy of the other's. It reads the position again only
// if the copy shows no free slot, or no new message: usually once in many messages.
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
#include <memory>
#include <span>
#include <type_traits>

namespace voice {

// The line size of Graviton4 and of x86; std::hardware_destructive_interference_size is 256 on some arm64 compilers,
// which would only waste memory, and it may differ between two translation units.
inline constexpr std::size_t kCacheLineBytes = 64;

// The memory orders of the hand-over. Tests replace them with relaxed ones to prove that they detect the difference.
struct AcquireRelease {
    static constexpr std::memory_order kTake = std::memory_order_acquire;
    static constexpr std::memory_order kGive = std::memory_order_release;
};

// The slots of a ring: an array, or memory whose size is set at construction. That memory is not written before the
// first message, so that the kernel allocates pages on first use.
template <typename Slot, std::size_t Slots>
class RingSlots {
    static_assert(std::has_single_bit(Slots), "the number of slots has to be a power of two");

public:
    [[nodiscard]] static constexpr std::size_t size() noexcept { return Slots; }
    [[nodiscard]] Slot& operator[](std::uint64_t at) noexcept { return slots_[at & (Slots - 1)]; }

private:
    std::array<Slot, Slots> slots_;
};

template <typename Slot>
class RingSlots<Slot, std::dynamic_extent> {
public:
    explicit RingSlots(std::size_t count) : slots_(std::make_unique_for_overwrite<Slot[]>(count)), mask_(count - 1) {
        assert(std::has_single_bit(count) && "the number of slots has to be a power of two");
    }
    [[nodiscard]] std::size_t size() const noexcept { return mask_ + 1; }
    [[nodiscard]] Slot& operator[](std::uint64_t at) noexcept { return slots_[at & mask_]; }

private:
    std::unique_ptr<Slot[]> slots_;
    std::size_t mask_;
};

template <typename T, std::size_t Slots = std::dynamic_extent, typename Orders = AcquireRelease>
class SpscRing {
    static_assert(std::is_trivially_destructible_v<T>, "a slot is reused without destroying what it holds");

public:
    static constexpr std::size_t kSlots = Slots;

    SpscRing() noexcept = default;
    // For a ring whose size is not part of its type; a power of two.
    explicit SpscRing(std::size_t slots) : free_until_(slots), slots_(slots) {}
    SpscRing(const SpscRing&) = delete;
    SpscRing& operator=(const SpscRing&) = delete;

    // Producer: returns the slot of the next message, or null while the ring is full. Claiming again before commit()
    // returns the same slot.
    [[nodiscard]] T* claim() noexcept {
        const std::uint64_t next = written_.load(std::memory_order_relaxed);
        if (next == free_until_) {
            free_until_ = read_.load(Orders::kTake) + slots_.size();
        }
        return next == free_until_ ? nullptr : &slots_[next].value;
    }

    // Producer: publishes the claimed slot.
    void commit() noexcept {
        const std::uint64_t next = written_.load(std::memory_order_relaxed);
        assert(next < free_until_ && "commit() without a claimed slot");
        written_.store(next + 1, Orders::kGive);
    }

    // Consumer: returns the oldest message, or the one `ahead` places after it; null if there is none yet. It is valid
    // until release().
    [[nodiscard]] T* peek(std::size_t ahead = 0) noexcept {
        const std::uint64_t wanted = read_.load(std::memory_order_relaxed) + ahead;
        if (wanted >= ready_until_) {
            ready_until_ = written_.load(Orders::kTake);
        }
        return wanted < ready_until_ ? &slots_[wanted].value : nullptr;
    }

    // Consumer: frees the slots of the oldest messages.
    void release(std::size_t count = 1) noexcept {
        const std::uint64_t next = read_.load(std::memory_order_relaxed) + count;
        assert(next <= ready_until_ && "release() without a message");
        read_.store(next, Orders::kGive);
    }

    // Any thread: approximate number of messages in the ring, from 0 to the number of its slots.
    [[nodiscard]] std::size_t occupancy() const noexcept {
        const std::uint64_t read = read_.load(std::memory_order_relaxed);
        const std::uint64_t written = written_.load(std::memory_order_relaxed);
        // The two loads are not atomic together: the consumer may have passed the value of `written` that was read
        // first.
        const std::uint64_t between = written > read ? written - read : 0;
        return between < slots_.size() ? static_cast<std::size_t>(between) : slots_.size();
    }

private:
    struct alignas(kCacheLineBytes) Slot {
        T value;
    };

    // Each side has its own cache line; a shared one would move between the threads with every message.
    alignas(kCacheLineBytes) std::atomic<std::uint64_t> written_{0};
    std::uint64_t free_until_ = Slots;  // the producer's: no message from this one on is known to have a free slot
    alignas(kCacheLineBytes) std::atomic<std::uint64_t> read_{0};
    std::uint64_t ready_until_ = 0;  // the consumer's: no message from this one on is known to be published
    alignas(kCacheLineBytes) RingSlots<Slot, Slots> slots_;
};

}  // namespace voice
