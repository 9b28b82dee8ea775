// Reading one session's 64 bytes: our table in shared memory, with and without a concurrent writer, against Redis GET
// through a unix socket, interleaved in one run. Single reads are timed; every figure includes 20-30 ns of the clock.
//   time_state ROUNDS REDIS-SOCKET
#include <hiredis/hiredis.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "measure.hpp"
#include "state/session_table.hpp"

namespace {

using voice::state::SessionTable;
using voice::state::SessionTableReader;

constexpr std::uint32_t kSessions = 50'000;
constexpr std::size_t kTableReads = 20'000;
constexpr std::size_t kRedisReads = 1'000;

using Value = std::array<std::byte, voice::state::kValueBytes>;

// Nanoseconds of every call.
template <typename Read>
std::vector<std::uint64_t> timed(std::size_t reads, std::mt19937_64& random, Read read) {
    std::vector<std::uint64_t> took(reads);
    for (std::uint64_t& one : took) {
        const std::uint64_t session = random() % kSessions;
        const std::uint64_t began = bench::now_ns();
        read(session);
        one = bench::now_ns() - began;
    }
    std::ranges::sort(took);
    return took;
}

struct Percentiles {
    bench::Result p50;
    bench::Result p95;

    explicit Percentiles(const std::string& name)
        : p50{"state read p50", name, "ns", {}}, p95{"state read p95", name, "ns", {}} {}

    void add(const std::vector<std::uint64_t>& sorted) {
        p50.rounds.push_back(static_cast<double>(sorted[sorted.size() / 2]));
        p95.rounds.push_back(static_cast<double>(sorted[sorted.size() * 95 / 100]));
    }
};

// Redis as its clients use it: binary key, one round trip.
class Redis {
public:
    explicit Redis(const char* socket) : context_(redisConnectUnix(socket)) {
        if (context_ == nullptr || context_->err != 0) {
            throw std::runtime_error(std::string("no Redis at ") + socket);
        }
    }
    Redis(const Redis&) = delete;
    Redis& operator=(const Redis&) = delete;
    ~Redis() { redisFree(context_); }

    void set(std::uint64_t session, const Value& value) {
        freeReplyObject(redisCommand(context_, "SET session:%llu %b", session, value.data(), value.size()));
    }

    void get(std::uint64_t session, Value& out) {
        auto* reply = static_cast<redisReply*>(redisCommand(context_, "GET session:%llu", session));
        if (reply == nullptr || reply->type != REDIS_REPLY_STRING || reply->len != out.size()) {
            throw std::runtime_error("Redis did not return the value");
        }
        std::memcpy(out.data(), reply->str, out.size());
        freeReplyObject(reply);
    }

private:
    redisContext* context_;
};

void read_table(const SessionTableReader& reader, std::uint64_t session, Value& out) {
    if (reader.read(session, 0, out) != SessionTableReader::Found::kYes) {
        throw std::runtime_error("a session is missing");
    }
    bench::keep(&out);
}

// Reads while a writer on the other CPU stores continuously.
std::vector<std::uint64_t> beside_writer(SessionTable& table, const SessionTableReader& reader,
                                         std::mt19937_64& random, Value& out) {
    std::atomic<bool> over = false;
    std::thread writer([&] {
        bench::pin(1);
        std::mt19937_64 choice(2);
        const Value value{};
        while (!over.load(std::memory_order_relaxed)) {
            table.put(choice() % kSessions, value, 1);
        }
    });
    auto took = timed(kTableReads, random, [&](std::uint64_t session) { read_table(reader, session, out); });
    over.store(true);
    writer.join();
    return took;
}

void measure(int rounds, const char* socket, const std::string& path) {
    std::mt19937_64 random(1);
    Value value{};
    SessionTable table(path, kSessions);
    const SessionTableReader reader(path);
    Redis redis(socket);
    for (std::uint64_t session = 0; session < kSessions; ++session) {
        table.put(session, value, 1);
        redis.set(session, value);
    }
    Percentiles alone("voice");
    Percentiles busy("voice, beside a writer");
    Percentiles rival("Redis, unix socket");
    for (int round = 0; round < rounds; ++round) {
        // A separate thread, so that Redis and the writer are not pinned to its CPU.
        std::thread([&] {
            bench::pin(0);
            alone.add(timed(kTableReads, random, [&](std::uint64_t s) { read_table(reader, s, value); }));
        }).join();
        std::thread([&] { rival.add(timed(kRedisReads, random, [&](std::uint64_t s) { redis.get(s, value); })); }).join();
        busy.add(beside_writer(table, reader, random, value));
    }
    bench::print({alone.p50, busy.p50, rival.p50, alone.p95, busy.p95, rival.p95});
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fputs("time_state ROUNDS REDIS-SOCKET\n", stderr);
        return 2;
    }
    const std::string path = "/dev/shm/voice-bench-" + std::to_string(getpid());
    int status = 0;
    try {
        measure(std::atoi(argv[1]), argv[2], path);
    } catch (const std::runtime_error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        status = 1;
    }
    std::remove(path.c_str());
    return status;
}
