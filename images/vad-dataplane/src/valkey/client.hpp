// Pipelined commands to the state store over one connection that is re-established automatically.
#pragma once

#include <hiredis/hiredis.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "valkey/link.hpp"

namespace voice::valkey {

struct FreeReply {
    void operator()(redisReply* reply) const noexcept { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

// Pairs of a response to HGETALL; views of the reply.
using Fields = std::vector<std::pair<std::string_view, std::string_view>>;
Fields fields_of(const redisReply& reply);
// The value of a field, or an empty one if the hash lacks it.
std::string_view value_of(const Fields& fields, std::string_view name);

// Used by one thread; the counters may be read by any.
class Client {
public:
    static constexpr std::chrono::milliseconds kFirstBackOff{100};
    static constexpr std::chrono::milliseconds kLongestBackOff{5000};

    explicit Client(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

    // Adds a command to the next exchange.
    void append(std::initializer_list<std::string_view> words);
    void append(const std::vector<std::string>& words);

    // Sends the appended commands and returns a response to each, in order. Nothing if the store is unreachable: the
    // commands are discarded, and further calls fail at once until the back-off ends.
    std::optional<std::vector<Reply>> exchange();

    struct Counters {
        std::atomic<std::uint64_t> connects{0};
        std::atomic<std::uint64_t> failures{0};  // failed and broken connections
        std::atomic<bool> connected{false};
    };
    [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
    // Why the last connection failed or broke.
    [[nodiscard]] const std::string& error() const noexcept { return error_; }

private:
    using Clock = std::chrono::steady_clock;
    struct FreeReader {
        void operator()(redisReader* reader) const noexcept { redisReaderFree(reader); }
    };

    bool is_connected();
    bool log_in();
    Reply receive();
    void fail(std::string why);

    Endpoint endpoint_;
    std::unique_ptr<Link> link_;
    std::unique_ptr<redisReader, FreeReader> reader_;
    std::string pending_;
    std::size_t commands_ = 0;
    std::chrono::milliseconds back_off_{0};
    Clock::time_point next_try_{};
    std::string error_;
    Counters counters_;
};

}  // namespace voice::valkey
