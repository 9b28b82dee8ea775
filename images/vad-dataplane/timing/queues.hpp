// The queues that time_ring compares, behind one interface each way of use:
//   in place: bool put(fill), bool take(use), with functions that write into and read from the queue's own memory
//   copied:   bool put(message), bool take(message)
// All hold kSlots messages (rte_ring: one less) between one producer and one consumer.
#pragma once

#include <rte_ring.h>
#include <rte_ring_peek_zc.h>

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "ring/spsc_ring.hpp"

namespace bench {

inline constexpr std::size_t kSlots = 1024;

template <typename T>
class OursInPlace {
public:
    template <typename Fill>
    bool put(Fill fill) {
        T* slot = ring_->claim();
        if (slot == nullptr) {
            return false;
        }
        fill(*slot);
        ring_->commit();
        return true;
    }

    template <typename Read>
    bool take(Read read) {
        const T* slot = ring_->peek();
        if (slot == nullptr) {
            return false;
        }
        read(*slot);
        ring_->release();
        return true;
    }

private:
    std::unique_ptr<voice::SpscRing<T, kSlots>> ring_ = std::make_unique<voice::SpscRing<T, kSlots>>();
};

// A ring in the style of rigtorp's SPSCQueue: two wrapping indices, each with the other side's copy on a separate line;
// one slot stays free, and slots are adjacent.
template <typename T>
class TwoIndexInPlace {
public:
    template <typename Fill>
    bool put(Fill fill) {
        const std::size_t at = written_.load(std::memory_order_relaxed);
        const std::size_t next = after(at);
        if (next == read_seen_) {
            read_seen_ = read_.load(std::memory_order_acquire);
            if (next == read_seen_) {
                return false;
            }
        }
        fill(slots_[at]);
        written_.store(next, std::memory_order_release);
        return true;
    }

    template <typename Read>
    bool take(Read read) {
        const std::size_t at = read_.load(std::memory_order_relaxed);
        if (at == written_seen_) {
            written_seen_ = written_.load(std::memory_order_acquire);
            if (at == written_seen_) {
                return false;
            }
        }
        read(slots_[at]);
        read_.store(after(at), std::memory_order_release);
        return true;
    }

private:
    static std::size_t after(std::size_t at) { return at == kSlots ? 0 : at + 1; }

    std::vector<T> slots_ = std::vector<T>(kSlots + 1);
    alignas(64) std::atomic<std::size_t> written_{0};
    alignas(64) std::size_t read_seen_ = 0;
    alignas(64) std::atomic<std::size_t> read_{0};
    alignas(64) std::size_t written_seen_ = 0;
};

// Queues that expose their own memory, used with copies.
template <typename Queue, typename T>
class Copied : Queue {
public:
    bool put(const T& message) {
        return Queue::put([&](T& slot) { slot = message; });
    }
    bool take(T& message) {
        return Queue::take([&](const T& slot) { message = slot; });
    }
};

// A ring of DPDK's in our own memory, which needs no EAL.
class RteRing {
public:
    explicit RteRing(std::size_t element) {
        const auto bytes = static_cast<std::size_t>(rte_ring_get_memsize_elem(static_cast<unsigned>(element), kSlots));
        ring_.reset(static_cast<rte_ring*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)));
        if (rte_ring_init(ring_.get(), "bench", kSlots, RING_F_SP_ENQ | RING_F_SC_DEQ) != 0) {
            throw std::bad_alloc();
        }
    }
    rte_ring* get() { return ring_.get(); }

private:
    struct Free {
        void operator()(rte_ring* ring) const { std::free(ring); }
    };
    std::unique_ptr<rte_ring, Free> ring_;
};

// DPDK's zero-copy calls: fill a reserved element, then commit it.
template <typename T>
class RteInPlace {
public:
    template <typename Fill>
    bool put(Fill fill) {
        rte_ring_zc_data at{};
        if (rte_ring_enqueue_zc_bulk_elem_start(ring_.get(), sizeof(T), 1, &at, nullptr) == 0) {
            return false;
        }
        fill(*static_cast<T*>(at.ptr1));
        rte_ring_enqueue_zc_elem_finish(ring_.get(), 1);
        return true;
    }

    template <typename Read>
    bool take(Read read) {
        rte_ring_zc_data at{};
        if (rte_ring_dequeue_zc_bulk_elem_start(ring_.get(), sizeof(T), 1, &at, nullptr) == 0) {
            return false;
        }
        read(*static_cast<const T*>(at.ptr1));
        rte_ring_dequeue_zc_elem_finish(ring_.get(), 1);
        return true;
    }

private:
    RteRing ring_{sizeof(T)};
};

template <typename T>
class RteCopied {
public:
    bool put(const T& message) { return rte_ring_sp_enqueue_elem(ring_.get(), const_cast<T*>(&message), sizeof(T)) == 0; }
    bool take(T& message) { return rte_ring_sc_dequeue_elem(ring_.get(), &message, sizeof(T)) == 0; }

private:
    RteRing ring_{sizeof(T)};
};

template <typename T>
class BoostCopied {
public:
    bool put(const T& message) { return queue_->push(message); }
    bool take(T& message) { return queue_->pop(message); }

private:
    using Queue = boost::lockfree::spsc_queue<T, boost::lockfree::capacity<kSlots>>;
    std::unique_ptr<Queue> queue_ = std::make_unique<Queue>();
};

// Messages in a pool, pointers to them in a queue: how programs with DPDK or Boost avoid copies. The pool has two more
// than the queue, one for the producer and one for the consumer; so the next in turn is always free.
template <typename T, typename Pointers>
class Pooled {
public:
    template <typename Fill>
    bool put(Fill fill) {
        // Filled once, even if it is offered several times.
        if (!filled_) {
            fill(pool_[next_]);
            filled_ = true;
        }
        if (!pointers_.put(&pool_[next_])) {
            return false;
        }
        filled_ = false;
        next_ = next_ + 1 == pool_.size() ? 0 : next_ + 1;
        return true;
    }

    template <typename Read>
    bool take(Read read) {
        T* message = nullptr;
        if (!pointers_.take(message)) {
            return false;
        }
        read(*message);
        return true;
    }

private:
    Pointers pointers_;
    std::vector<T> pool_ = std::vector<T>(kSlots + 2);
    alignas(64) std::size_t next_ = 0;
    bool filled_ = false;
};

}  // namespace bench
