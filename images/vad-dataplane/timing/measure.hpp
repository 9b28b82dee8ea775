// Shared by these programs: clock, pinning, best of interleaved rounds, JSON.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace bench {

inline std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}

// Keeps the compiler from removing a computation, or from moving it past this point.
template <typename T>
inline void keep(T* value) {
    asm volatile("" : : "r"(value) : "memory");
}

// Pins the thread to a separate CPU, with real-time priority where the kernel allows it: otherwise the bench would
// measure preemption on a shared machine.
inline void pin(std::size_t index) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    static const std::vector<std::size_t> cpus = [&] {
        std::vector<std::size_t> found;
        for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET(cpu, &allowed)) {
                found.push_back(cpu);
            }
        }
        return found;
    }();
    if (index >= cpus.size()) {
        throw std::runtime_error("the bench needs two CPUs");
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[index], &one);
    if (pthread_setaffinity_np(pthread_self(), sizeof one, &one) != 0) {
        throw std::runtime_error("cannot tie a thread to a CPU");
    }
    const sched_param lowest{.sched_priority = 1};
    pthread_setschedparam(pthread_self(), SCHED_FIFO, &lowest);
}

// Runs unmeasured work on another CPU, so that it leaves nothing in the caches of the measured one: packets arrive
// there as from a NIC.
class OtherCpu {
public:
    OtherCpu() : thread_([this] { serve(); }) {}
    OtherCpu(const OtherCpu&) = delete;
    OtherCpu& operator=(const OtherCpu&) = delete;
    ~OtherCpu() {
        run(nullptr);
        thread_.join();
    }

    // Returns after completion.
    void run(std::function<void()> work) {
        work_ = std::move(work);
        wanted_.store(true, std::memory_order_release);
        wanted_.notify_one();
        wanted_.wait(true, std::memory_order_acquire);
    }

private:
    void serve() {
        pin(1);
        while (true) {
            wanted_.wait(false, std::memory_order_acquire);
            const bool ends = work_ == nullptr;
            if (!ends) {
                work_();
            }
            wanted_.store(false, std::memory_order_release);
            wanted_.notify_one();
            if (ends) {
                return;
            }
        }
    }

    std::function<void()> work_;
    std::atomic<bool> wanted_{false};
    std::thread thread_;
};

// One measured item, and its result in every round.
struct Result {
    std::string group;
    std::string name;
    std::string unit;
    std::vector<double> rounds;
};

// One JSON object per line, for the Python front end.
inline void print(const std::vector<Result>& results) {
    for (const Result& result : results) {
        std::printf(R"({"group": "%s", "name": "%s", "unit": "%s", "rounds": [)", result.group.c_str(),
                    result.name.c_str(), result.unit.c_str());
        for (std::size_t i = 0; i < result.rounds.size(); ++i) {
            std::printf("%s%.6g", i == 0 ? "" : ", ", result.rounds[i]);
        }
        std::puts("]}");
    }
}

}  // namespace bench
