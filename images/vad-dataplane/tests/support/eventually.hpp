// Waiting in tests.
#pragma once

#include <chrono>
#include <thread>

namespace voice::test {

// Longest wait in a test for what takes milliseconds on an idle machine: a busy one with one core is no failure.
constexpr std::chrono::seconds kPatience(60);

// Waits until the condition holds.
template <typename Condition>
bool eventually(Condition&& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() >= end) {
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

}  // namespace voice::test
