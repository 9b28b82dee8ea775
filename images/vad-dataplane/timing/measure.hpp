// What these programs share: clock, pinning, best of interleaved rounds, JSON.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

inline std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
}

// Keeps the compiler from dropping a computation, or from moving it past this point.
template <typename T>
inline void keep(T* value) {
    asm volatile("" : : "r"(value) : "memory");
}

// Ties the thread to a CPU of its own. In real time where the kernel allows it: on a shared machine the bench would
// measure how often it is preempted, otherwise.
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

// One thing that is measured, and what it gave in every round.
struct Result {
    std::string group;
    std::string name;
    std::string unit;
    std::vector<double> rounds;
};

// One JSON object a line: the Python front reads them.
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
