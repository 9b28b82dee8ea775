// Passes an object from a control thread to a working thread and back: the working thread neither allocates nor frees.
#pragma once

#include <atomic>
#include <memory>

namespace voice {

template <typename T>
class Mailbox {
public:
    Mailbox() noexcept = default;
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;
    ~Mailbox() {
        delete offered_.load(std::memory_order_acquire);
        delete returned_.load(std::memory_order_acquire);
    }

    // Control thread: offers an object, and replaces one that has not been taken; null withdraws it.
    void offer(std::unique_ptr<T> next) noexcept { delete offered_.exchange(next.release(), std::memory_order_acq_rel); }
    // Control thread: frees the returned object; false if there is none (yet).
    bool collect() noexcept {
        T* old = returned_.exchange(nullptr, std::memory_order_acq_rel);
        delete old;
        return old != nullptr;
    }

    // Working thread: null if nothing is offered, or if the last object has not been collected.
    [[nodiscard]] T* take() noexcept {
        if (offered_.load(std::memory_order_relaxed) == nullptr || returned_.load(std::memory_order_relaxed) != nullptr) {
            return nullptr;
        }
        return offered_.exchange(nullptr, std::memory_order_acquire);
    }
    // Working thread: returns what it took, with everything to be freed in it.
    void give_back(T* taken) noexcept { returned_.store(taken, std::memory_order_release); }

private:
    std::atomic<T*> offered_{nullptr};
    std::atomic<T*> returned_{nullptr};
};

}  // namespace voice
