// The session table in one thread: sessions, expiry, limits, refused files.
#include "state/session_table.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "../features/allocations.hpp"
#include "fixture.hpp"

namespace voice::state {
namespace {

using Found = SessionTableReader::Found;
using Stored = SessionTable::Stored;

struct SessionTableTest : testing::Test {
    Found read(std::uint64_t session, std::uint64_t now_ns = kNow) { return reader.read(session, now_ns, out); }

    TableFile file;
    SessionTable table{file.path(), 100};
    SessionTableReader reader{file.path()};
    Value out{};
};

TEST_F(SessionTableTest, FindsWhatWasStored) {
    EXPECT_EQ(read(7), Found::kNo);
    EXPECT_EQ(table.put(7, value_of(70), kLater), Stored::kInserted);
    ASSERT_EQ(read(7), Found::kYes);
    EXPECT_EQ(out, value_of(70));
    EXPECT_EQ(table.put(7, value_of(71), kLater), Stored::kUpdated);
    ASSERT_EQ(read(7), Found::kYes);
    EXPECT_EQ(out, value_of(71));
    EXPECT_EQ(table.size(), 1U);
    EXPECT_TRUE(table.erase(7));
    EXPECT_FALSE(table.erase(7));
    EXPECT_EQ(read(7), Found::kNo);
    EXPECT_EQ(table.size(), 0U);
}

TEST_F(SessionTableTest, TakesEveryNumberForASession) {
    for (const std::uint64_t session : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63U}) {
        EXPECT_EQ(read(session), Found::kNo);
        EXPECT_EQ(table.put(session, value_of(session), kLater), Stored::kInserted);
        ASSERT_EQ(read(session), Found::kYes);
        EXPECT_EQ(out, value_of(session));
    }
}

TEST_F(SessionTableTest, AThreadOfTheWritersProcessNeedsNoMappingOfItsOwn) {
    const SessionTableReader inside(table);
    table.put(7, value_of(70), kLater);
    EXPECT_EQ(inside.read(7, kNow, out), Found::kYes);
    EXPECT_EQ(out, value_of(70));
}

TEST_F(SessionTableTest, AnExpiredSessionIsUnknownAtOnceAndItsRoomIsFreeAfterTheSweep) {
    table.put(7, value_of(70), kLater);
    table.put(8, value_of(80), kLater + 1);
    EXPECT_EQ(read(7, kLater - 1), Found::kYes);
    EXPECT_EQ(read(7, kLater), Found::kNo);
    EXPECT_EQ(table.size(), 2U);
    std::size_t erased = 0;
    for (std::size_t slot = 0; slot < table.slots(); slot += 16) {
        erased += table.expire(kLater, 16);
    }
    EXPECT_EQ(erased, 1U);
    EXPECT_EQ(table.size(), 1U);
    EXPECT_EQ(read(8, kLater), Found::kYes);
}

TEST_F(SessionTableTest, AStoredSessionLivesOn) {
    table.put(7, value_of(70), kLater);
    table.put(7, value_of(71), 2 * kLater);
    EXPECT_EQ(table.expire(kLater, table.slots()), 0U);
    EXPECT_EQ(read(7, kLater), Found::kYes);
}

TEST_F(SessionTableTest, AFullTableRefusesNewSessionsAndKeepsTheOthers) {
    for (std::uint64_t session = 0; session < 100; ++session) {
        ASSERT_EQ(table.put(session, value_of(session), kLater), Stored::kInserted);
    }
    EXPECT_EQ(table.put(100, value_of(100), kLater), Stored::kFull);
    EXPECT_EQ(read(100), Found::kNo);
    EXPECT_EQ(table.put(50, value_of(51), kLater), Stored::kUpdated) << "one that is held is not new";
    for (std::uint64_t session = 0; session < 100; ++session) {
        ASSERT_EQ(read(session), Found::kYes);
    }
    table.erase(3);
    EXPECT_EQ(table.put(100, value_of(100), kLater), Stored::kInserted);
    EXPECT_EQ(read(100), Found::kYes);
}

TEST_F(SessionTableTest, AllocatesNothingAfterConstruction) {
    const Value value = value_of(1);
    const std::size_t before = allocations();
    for (std::uint64_t session = 0; session < 150; ++session) {
        table.put(session, value, kLater);
        read(session);
        table.erase(session / 2);
    }
    table.expire(kLater, table.slots());
    const std::size_t after = allocations();
    EXPECT_EQ(after, before);
    EXPECT_GT(before, 0U) << "the counter counts";
}

TEST_F(SessionTableTest, AgreesWithAMapOverRandomOperations) {
    for (std::uint32_t seed = 1; seed <= 20; ++seed) {
        std::mt19937_64 random(seed);
        TableFile small;
        SessionTable writer(small.path(), 16);
        const SessionTableReader other(writer);
        std::unordered_map<std::uint64_t, std::uint64_t> model;
        for (std::uint64_t step = 0; step < 1000; ++step) {
            const std::uint64_t session = random() % 24;
            if (random() % 2 == 0) {
                ASSERT_EQ(writer.erase(session), model.erase(session) == 1) << "seed " << seed << " step " << step;
            } else if (writer.put(session, value_of(step), kLater) == Stored::kFull) {
                ASSERT_TRUE(model.size() == 16 && !model.contains(session)) << "seed " << seed << " step " << step;
            } else {
                model[session] = step;
            }
            ASSERT_EQ(writer.size(), model.size());
            for (std::uint64_t asked = 0; asked < 24; ++asked) {
                const bool held = model.contains(asked);
                ASSERT_EQ(other.read(asked, kNow, out), held ? Found::kYes : Found::kNo) << "seed " << seed;
                ASSERT_TRUE(!held || out == value_of(model[asked]));
            }
        }
    }
}

// A search for an unknown session ends at a free slot, so free slots must not run out.
TEST(SessionTableFile, SearchesStayShortThoughSessionsComeAndGo) {
    constexpr std::uint32_t sessions = 1024;
    TableFile file;
    SessionTable table(file.path(), sessions);
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> held(sessions);
    for (std::size_t i = 0; i < 100 * sessions; ++i) {
        std::uint64_t& session = held[random() % sessions];
        table.erase(session);
        session = random();
        ASSERT_EQ(table.put(session, value_of(i), kLater), Stored::kInserted);
    }
    std::size_t run = 0;
    std::size_t longest = 0;
    for (const Entry& entry : SessionTableReader(table).entries()) {
        run = entry.held.load() == 0 ? 0 : run + 1;
        longest = std::max(longest, run);
    }
    std::printf("longest search: %zu of %zu slots\n", longest, table.slots());
    EXPECT_LT(longest, 400U);
}

TEST(SessionTableFile, SessionsOutliveTheirWriter) {
    TableFile file;
    SessionTable(file.path(), 10).put(7, value_of(70), kLater);
    const SessionTableReader reader(file.path());
    const SessionTable next(file.path(), 10);
    Value out;
    EXPECT_EQ(next.size(), 1U);
    EXPECT_EQ(reader.read(7, kNow, out), Found::kYes);
}

// The error from opening the file.
template <typename Open>
std::string complaint(Open open) {
    try {
        open();
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return "";
}

void patch(const std::string& path, std::size_t at, std::uint32_t number) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(&number), sizeof number);
}

TEST(SessionTableFile, RefusesAHeaderThatIsNotItsOwn) {
    struct {
        std::size_t at;
        const char* complaint;
    } const fields[] = {{0, "is no session table"},
                        {offsetof(Header, version), "its version is 9, this program needs 1"},
                        {offsetof(Header, value_bytes), "its value size is 9, this program needs 64"},
                        {offsetof(Header, entry_bytes), "its entry size is 9, this program needs 128"},
                        {offsetof(Header, slots), "9 slots cannot hold 10 sessions"}};
    for (const auto& field : fields) {
        TableFile file;
        { const SessionTable table(file.path(), 10); }
        patch(file.path(), field.at, 9);
        for (const std::string& said : {complaint([&] { SessionTable(file.path(), 10); }),
                                        complaint([&] { const SessionTableReader reader(file.path()); })}) {
            EXPECT_NE(said.find(field.complaint), std::string::npos) << said;
            EXPECT_NE(said.find(file.path()), std::string::npos) << said;
        }
    }
}

TEST(SessionTableFile, RefusesAFileOfAnotherSize) {
    TableFile file;
    { const SessionTable table(file.path(), 10); }
    ASSERT_EQ(truncate(file.path().c_str(), 1000), 0);
    const auto said = complaint([&] { const SessionTableReader reader(file.path()); });
    EXPECT_NE(said.find("its size is 1000, this program needs 4224; stop"), std::string::npos) << said;
}

TEST(SessionTableFile, RefusesWhatIsNoTable) {
    TableFile file;
    auto said = complaint([&] { const SessionTableReader reader(file.path()); });
    EXPECT_NE(said.find("cannot open it to read: No such file"), std::string::npos) << said;
    std::ofstream(file.path()) << "short";
    said = complaint([&] { SessionTable(file.path(), 10); });
    EXPECT_NE(said.find("is no session table"), std::string::npos) << said;
}

TEST(SessionTableFile, RefusesASecondWriterAndAnotherNumberOfSessions) {
    TableFile file;
    {
        const SessionTable table(file.path(), 10);
        const auto said = complaint([&] { SessionTable(file.path(), 10); });
        EXPECT_NE(said.find("has a writer already"), std::string::npos) << said;
    }
    auto said = complaint([&] { SessionTable(file.path(), 11); });
    EXPECT_NE(said.find("number of sessions is 10, this program needs 11; stop"), std::string::npos) << said;
    said = complaint([&] { SessionTable(file.path(), 0); });
    EXPECT_NE(said.find("0 sessions: 1 to 16777216 are possible"), std::string::npos) << said;
}

TEST(SessionTableFile, AFileWhoseWriterEndedBeforeItsHeaderIsMadeAnew) {
    TableFile file;
    std::ofstream(file.path()) << std::string(64, '\0');
    SessionTable table(file.path(), 10);
    EXPECT_EQ(table.put(1, value_of(1), kLater), Stored::kInserted);
}

}  // namespace
}  // namespace voice::state
