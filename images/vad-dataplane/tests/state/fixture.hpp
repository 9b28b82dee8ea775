// A table's file in memory for one test, and values that reveal inconsistency.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "state/session_state.hpp"
#include "state/session_table.hpp"

namespace voice::state {

inline constexpr std::uint64_t kNow = 1000;
inline constexpr std::uint64_t kLater = 2000;

// Every word of the value is the same number.
inline Value value_of(std::uint64_t number) {
    Value value;
    for (std::size_t at = 0; at < kValueBytes; at += sizeof number) {
        std::memcpy(&value[at], &number, sizeof number);
    }
    return value;
}

inline std::uint64_t word(const Value& value, std::size_t index) {
    std::uint64_t number = 0;
    std::memcpy(&number, &value[index * sizeof number], sizeof number);
    return number;
}

inline bool is_whole(const Value& value) { return value == value_of(word(value, 0)); }

class TableFile {
public:
    TableFile() {
        static int made = 0;
        path_ = "/dev/shm/voice-test-" + std::to_string(getpid()) + "-" + std::to_string(made++);
    }
    TableFile(const TableFile&) = delete;
    TableFile& operator=(const TableFile&) = delete;
    ~TableFile() { std::remove(path_.c_str()); }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

}  // namespace voice::state
