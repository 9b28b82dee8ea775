// The session table between a writer and readers, in threads and in processes, and after a writer's sudden death. Built
// with PLAIN_READS it is the negative control, which ThreadSanitizer must refuse.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <limits>
#include <thread>
#include <vector>

#include "fixture.hpp"

namespace voice::state {
namespace {

using Found = SessionTableReader::Found;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kSessions = 8;
constexpr std::uint64_t kSteady = 1'000'000;  // this session is stored repeatedly, and never erased

// Rewrites one session, and adds and removes others around it.
void churn(SessionTable& table, std::uint64_t step) {
    table.put(kSteady, value_of(step), kLater);
    const std::uint64_t other = step % (3 * kSessions);
    if (table.put(other, value_of(step), kLater) == SessionTable::Stored::kFull) {
        for (std::uint64_t session = 0; session < 3 * kSessions; session += 2) {
            table.erase(session);
        }
    }
    table.erase((step * 7) % (3 * kSessions));
}

#ifdef PLAIN_READS
// Until a value is inconsistent, which happens sooner or later on every machine.
constexpr std::uint64_t kWanted = std::numeric_limits<std::uint64_t>::max();
#elif defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kWanted = 10'000;
#else
constexpr std::uint64_t kWanted = 200'000;
#endif

struct Count {
    std::uint64_t whole = 0;
    std::uint64_t broken = 0;
    std::uint64_t missed = 0;
    std::uint64_t given_up = 0;
};

void count_read(Found found, std::uint64_t session, const Value& out, Count& count) {
    if (found == Found::kYes) {
        ++(is_whole(out) ? count.whole : count.broken);
    } else if (found == Found::kTorn) {
        ++count.given_up;
    } else if (session == kSteady) {
        ++count.missed;
    }
}

#ifdef PLAIN_READS
// Reads words as plain memory, without the sequence lock.
Found read(const SessionTableReader& reader, std::uint64_t session, Value& out) {
    for (const Entry& entry : reader.entries()) {
        if (entry.held.load() == 1 && entry.key.load() == session) {
            std::memcpy(out.data(), static_cast<const void*>(entry.value.data()), out.size());
            return Found::kYes;
        }
    }
    return Found::kNo;
}
#else
Found read(const SessionTableReader& reader, std::uint64_t session, Value& out) {
    return reader.read(session, kNow, out);
}
#endif

// Until kWanted values were consistent or one was not; a preempted writer costs time, but does not fail the test.
Count read_enough(const SessionTableReader& reader) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    Count count;
    Value out;
    for (std::uint64_t i = 0; count.whole < kWanted && count.broken == 0 && Clock::now() < deadline; ++i) {
        const std::uint64_t session = i % 2 == 0 ? kSteady : i % (3 * kSessions);
        count_read(read(reader, session, out), session, out, count);
    }
    return count;
}

void expect_sound(const Count& count) {
    EXPECT_GT(count.whole, 0U);
    EXPECT_EQ(count.broken, 0U);
    EXPECT_EQ(count.missed, 0U) << "a session that is always held was not found";
}

TEST(SessionTableThreads, ReadersSeeWholeValuesOrNone) {
    TableFile file;
    SessionTable table(file.path(), kSessions);
    const SessionTableReader reader(table);
    churn(table, 0);
    std::atomic<bool> over = false;
    std::thread writer([&] {
        for (std::uint64_t step = 1; !over.load(); ++step) {
            churn(table, step);
        }
    });
    Count other;
    std::thread second([&] { other = read_enough(reader); });
    const Count count = read_enough(reader);
    second.join();
    over.store(true);
    writer.join();
    expect_sound(count);
    expect_sound(other);
}

#ifndef PLAIN_READS

// A writer in a separate process that works until it is killed.
pid_t start_writer(const std::string& path) {
    const pid_t writer = fork();
    if (writer == 0) {
        SessionTable table(path, kSessions);
        for (std::uint64_t step = 0;; ++step) {
            churn(table, step);
        }
    }
    return writer;
}

void kill_writer(pid_t writer) {
    kill(writer, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
}

SessionTableReader wait_for_table(const std::string& path) {
    for (const auto deadline = Clock::now() + std::chrono::seconds(30);;) {
        try {
            SessionTableReader reader(path);
            Value out;
            if (reader.read(kSteady, kNow, out) == Found::kYes) {
                return reader;
            }
        } catch (const std::runtime_error&) {
            if (Clock::now() > deadline) {
                throw;
            }
        }
    }
}

TEST(SessionTableProcesses, ReadersSeeWholeValuesOrNone) {
    TableFile file;
    const pid_t writer = start_writer(file.path());
    const SessionTableReader reader = wait_for_table(file.path());
    const Count count = read_enough(reader);
    kill_writer(writer);
    expect_sound(count);
}

TEST(SessionTableProcesses, AKilledWriterLeavesNothingBroken) {
    TableFile file;
    int torn = 0;
    for (int life = 0; life < 30; ++life) {
        const pid_t writer = start_writer(file.path());
        const SessionTableReader reader = wait_for_table(file.path());
        std::this_thread::sleep_for(std::chrono::microseconds(137 * life));
        kill_writer(writer);
        Count count;
        Value out;
        for (std::uint64_t i = 0; i < 3 * kSessions; ++i) {
            count_read(reader.read(kSteady, kNow, out), kSteady, out, count);
            count_read(reader.read(i, kNow, out), i, out, count);
        }
        EXPECT_EQ(count.broken + count.missed, 0U);
        torn += count.given_up > 0 ? 1 : 0;
        SessionTable next(file.path(), kSessions);
        churn(next, 1);
        EXPECT_EQ(reader.read(kSteady, kNow, out), Found::kYes);
        EXPECT_TRUE(is_whole(out));
    }
    std::printf("killed in the middle of a write: %d of 30\n", torn);
}

TEST(SessionTableProcesses, AnUnfinishedEntryIsToldAndTheNextWriterErasesIt) {
    TableFile file;
    {
        SessionTable table(file.path(), kSessions);
        table.put(1, value_of(1), kLater);
        table.put(2, value_of(2), kLater);
    }
    const SessionTableReader reader(file.path());
    {
        const Mapping dead = Mapping::open_to_write(file.path(), kSessions);
        for (Entry& entry : dead.entries()) {
            if (entry.key.load() == 1) {
                entry.sequence.fetch_add(1);
            }
        }
    }
    Value out;
    EXPECT_EQ(reader.read(1, kNow, out), Found::kTorn);
    EXPECT_EQ(reader.read(2, kNow, out), Found::kYes);
    SessionTable next(file.path(), kSessions);
    EXPECT_EQ(reader.read(1, kNow, out), Found::kNo);
    EXPECT_EQ(reader.read(2, kNow, out), Found::kYes);
    EXPECT_EQ(next.size(), 1U);
    EXPECT_EQ(next.put(1, value_of(3), kLater), SessionTable::Stored::kInserted);
    EXPECT_EQ(reader.read(1, kNow, out), Found::kYes);
}

TEST(SessionTableProcesses, UnfinishedMovesHideNoSessionAndTheNextWriterPutsThemInOrder) {
    TableFile file;
    {
        SessionTable table(file.path(), kSessions);
        for (std::uint64_t session = 0; session < kSessions; ++session) {
            table.put(session, value_of(session), kLater);
        }
    }
    const SessionTableReader reader(file.path());
    { Mapping::open_to_write(file.path(), kSessions).control().moves.fetch_add(1); }
    Value out;
    EXPECT_EQ(reader.read(1, kNow, out), Found::kYes) << "what is found is found";
    EXPECT_EQ(reader.read(99, kNow, out), Found::kTorn) << "what is not found may have been missed";
    const SessionTable next(file.path(), kSessions);
    EXPECT_EQ(next.size(), kSessions);
    EXPECT_EQ(reader.read(99, kNow, out), Found::kNo);
    for (std::uint64_t session = 0; session < kSessions; ++session) {
        EXPECT_EQ(reader.read(session, kNow, out), Found::kYes);
        EXPECT_EQ(out, value_of(session));
    }
}

#endif

}  // namespace
}  // namespace voice::state
