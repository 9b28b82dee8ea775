// The control thread over real sockets and with real signals.
#include "control/server.hpp"

#include <gtest/gtest.h>
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "data_plane.hpp"
#include "support/store.hpp"

namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using voice::Descriptor;
using voice::control::Server;
using voice::test::eventually;
using voice::test::kPatience;

constexpr auto kPatienceMs = static_cast<int>(std::chrono::milliseconds(kPatience).count());

class Caller {
public:
    explicit Caller(const std::string& path) : socket_(socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    void say(std::string_view text) const { EXPECT_GT(send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL), 0); }
    void hang_up_half() const { EXPECT_EQ(shutdown(socket_.get(), SHUT_WR), 0); }

    // The next line; empty if the peer has closed.
    std::string line() {
        for (;;) {
            const auto end = in_.find('\n');
            if (end != std::string::npos) {
                auto line = in_.substr(0, end);
                in_.erase(0, end + 1);
                return line;
            }
            pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
            std::array<char, 4096> bytes{};
            const auto got = poll(&ready, 1, kPatienceMs) == 1 ? recv(socket_.get(), bytes.data(), bytes.size(), 0) : -1;
            if (got <= 0) {
                EXPECT_EQ(got, 0) << "no answer";
                return "";
            }
            in_.append(bytes.data(), static_cast<std::size_t>(got));
        }
    }

private:
    Descriptor socket_;
    std::string in_;
};

class ServerTest : public ::testing::Test {
protected:
    void start(std::chrono::milliseconds drain_timeout = 10s, std::chrono::milliseconds idle = 10s) {
        server_ = std::make_unique<Server>(
            Server::Settings{path_, port_, drain_timeout, 10ms, idle}, data_plane_);
        std::string error;
        ASSERT_TRUE(server_->open(error)) << error;
        exit_ = std::async(std::launch::async, [this] { return server_->run(); });
    }
    void TearDown() override {
        if (exit_.valid()) {
            data_plane_.drained = true;
            kill(getpid(), SIGTERM);
            EXPECT_EQ(exit_.wait_for(kPatience), std::future_status::ready);
        }
        // A server that had already ended left the signal for the next test's.
        sigset_t end;
        sigemptyset(&end);
        sigaddset(&end, SIGTERM);
        const timespec at_once{};
        EXPECT_LE(sigtimedwait(&end, nullptr, &at_once), SIGTERM);
    }
    [[nodiscard]] Descriptor connect_health() const {
        Descriptor caller(socket(AF_INET, SOCK_STREAM, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port_);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (connect(caller.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
            // Reset: the port closed before the connection was accepted.
            EXPECT_TRUE(errno == ECONNREFUSED || errno == ECONNRESET) << errno;
            caller.reset();
        }
        return caller;
    }
    [[nodiscard]] bool is_healthy() const { return connect_health().is_open(); }

    voice::test::Folder folder_;
    std::string path_ = folder_ / "control.sock";
    std::uint16_t port_ = voice::test::free_port();
    voice::test::FakeDataPlane data_plane_;
    std::unique_ptr<Server> server_;
    std::future<Server::Exit> exit_;
};

TEST_F(ServerTest, AnswersLineByLine) {
    start();
    Caller caller(path_);
    caller.say("{\"command\":\"status\"}\n{\"command\":\"coun");
    EXPECT_EQ(json::parse(caller.line()).at("result").at("state"), "ready");
    caller.say("ters\"}\nnonsense\n");
    EXPECT_EQ(json::parse(caller.line()).at("result").at("sessions"), 3);
    EXPECT_EQ(json::parse(caller.line()).at("ok"), false);
    caller.say("{\"command\":\"status\"}\n");
    EXPECT_EQ(json::parse(caller.line()).at("ok"), true) << "a bad request ends nothing";
}

TEST_F(ServerTest, ACallerThatHasSaidAllGetsItsAnswers) {
    start();
    Caller caller(path_);
    caller.say("{\"command\":\"sessions\",\"limit\":1000}\n{\"command\":\"status\"}\n");
    caller.hang_up_half();
    EXPECT_EQ(json::parse(caller.line()).at("result").size(), 1000U);
    EXPECT_EQ(json::parse(caller.line()).at("ok"), true);
    EXPECT_EQ(caller.line(), "");
}

TEST_F(ServerTest, AnEndlessLineIsRefusedAndClosed) {
    start();
    Caller caller(path_);
    caller.say(std::string(5000, 'x'));
    EXPECT_EQ(json::parse(caller.line()).at("ok"), false);
    EXPECT_EQ(caller.line(), "");
}

TEST_F(ServerTest, ManyCallersAreServedAndTheOldestGivesWay) {
    start();
    std::vector<Caller> callers;
    for (std::size_t n = 0; n < Server::kMostConnections + 10; ++n) {
        callers.emplace_back(path_);
        callers.back().say("{\"command\":\"status\"}\n");
        EXPECT_EQ(json::parse(callers.back().line()).at("ok"), true);
    }
    EXPECT_EQ(callers.front().line(), "");
}

TEST_F(ServerTest, AnIdleConnectionIsClosed) {
    start(10s, 50ms);
    Caller caller(path_);
    EXPECT_EQ(caller.line(), "");
}

TEST_F(ServerTest, ItsSocketIsForOwnerAndGroup) {
    umask(0077);
    start();
    struct stat about{};
    ASSERT_EQ(stat(path_.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777U, 0660U);
    umask(0022);
}

// Telemetry's container has a separate user, and the socket's group.
TEST_F(ServerTest, AMemberOfItsGroupChangesNothing) {
    start();
    ASSERT_EQ(chmod((folder_ / "").c_str(), 0755), 0);
    std::string drained;
    std::string read;
    std::thread([&] {
        constexpr uid_t kTelemetry = 10'001;
        ASSERT_EQ(syscall(SYS_setresuid, -1, kTelemetry, -1), 0) << "of this thread alone, which glibc's is not";
        Caller caller(path_);
        caller.say("{\"command\":\"drain\"}\n{\"command\":\"counters\"}\n");
        drained = caller.line();
        read = caller.line();
    }).join();
    EXPECT_EQ(json::parse(drained).at("ok"), false);
    EXPECT_EQ(json::parse(read).at("ok"), true);
    EXPECT_FALSE(data_plane_.draining);
}

TEST_F(ServerTest, ASocketThatAKilledProcessLeftIsReplaced) {
    {
        const Descriptor left(socket(AF_UNIX, SOCK_STREAM, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path_.copy(address.sun_path, sizeof address.sun_path - 1);
        ASSERT_EQ(bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    }
    start();
    Caller caller(path_);
    caller.say("{\"command\":\"status\"}\n");
    EXPECT_EQ(json::parse(caller.line()).at("ok"), true);
    Server second({path_, port_, 1s, 10ms, 1s}, data_plane_);
    std::string error;
    EXPECT_FALSE(second.open(error)) << "took a living process's socket";
    EXPECT_NE(error.find(path_), std::string::npos);
}

TEST_F(ServerTest, WhatIsNoSocketStays) {
    path_ = folder_.write("file", "precious");
    Server server({path_, port_, 1s, 10ms, 1s}, data_plane_);
    std::string error;
    EXPECT_FALSE(server.open(error));
    EXPECT_TRUE(std::filesystem::is_regular_file(path_));
    Server too_long({std::string(200, '/'), port_, 1s, 10ms, 1s}, data_plane_);
    EXPECT_FALSE(too_long.open(error));
}

TEST_F(ServerTest, TheHealthPortFollowsThePackets) {
    data_plane_.flows = false;
    start();
    std::this_thread::sleep_for(50ms);
    EXPECT_FALSE(is_healthy());
    data_plane_.flows = true;
    EXPECT_TRUE(eventually([&] { return is_healthy(); }));
    EXPECT_TRUE(data_plane_.healthy) << "where no kernel answers, too";
    data_plane_.flows = false;
    EXPECT_TRUE(eventually([&] { return !is_healthy(); }));
    EXPECT_FALSE(data_plane_.healthy);
}

TEST_F(ServerTest, TheHealthPortSpeaksHttpToThoseThatAsk) {
    start();
    ASSERT_TRUE(eventually([&] { return is_healthy(); }));
    const auto caller = connect_health();
    const std::string_view request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    ASSERT_GT(send(caller.get(), request.data(), request.size(), MSG_NOSIGNAL), 0);
    std::array<char, 256> bytes{};
    const auto got = recv(caller.get(), bytes.data(), bytes.size(), MSG_WAITALL);
    ASSERT_GT(got, 0);
    EXPECT_EQ(std::string(bytes.data(), 15), "HTTP/1.1 200 OK");
}

TEST_F(ServerTest, SigtermDrains) {
    start();
    ASSERT_TRUE(eventually([&] { return is_healthy(); }));
    kill(getpid(), SIGTERM);
    ASSERT_TRUE(eventually([&] { return data_plane_.draining.load(); }));
    EXPECT_TRUE(eventually([&] { return !is_healthy(); })) << "still takes load";
    EXPECT_EQ(exit_.wait_for(100ms), std::future_status::timeout) << "sessions are left";
    Caller caller(path_);
    caller.say("{\"command\":\"status\"}\n");
    EXPECT_EQ(json::parse(caller.line()).at("result").at("state"), "draining");
    data_plane_.drained = true;
    ASSERT_EQ(exit_.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(exit_.get(), Server::Exit::kDrained);
}

TEST_F(ServerTest, TheCommandDrainsAsWell) {
    start();
    Caller caller(path_);
    caller.say("{\"command\":\"drain\"}\n");
    EXPECT_EQ(json::parse(caller.line()).at("ok"), true);
    EXPECT_TRUE(eventually([&] { return data_plane_.draining.load(); }));
}

TEST_F(ServerTest, DrainingEndsWithItsTime) {
    start(100ms);
    kill(getpid(), SIGTERM);
    ASSERT_EQ(exit_.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(exit_.get(), Server::Exit::kTimedOut);
}

TEST_F(ServerTest, ASecondSignalHurries) {
    start();
    kill(getpid(), SIGTERM);
    ASSERT_TRUE(eventually([&] { return data_plane_.draining.load(); }));
    kill(getpid(), SIGINT);
    ASSERT_EQ(exit_.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(exit_.get(), Server::Exit::kHurried);
}

TEST_F(ServerTest, TheFirstSignalAfterTheCommandDoesNotHurry) {
    start();
    Caller caller(path_);
    caller.say("{\"command\":\"drain\"}\n");
    EXPECT_EQ(json::parse(caller.line()).at("ok"), true);
    kill(getpid(), SIGTERM);
    EXPECT_EQ(exit_.wait_for(100ms), std::future_status::timeout) << "sessions are left";
    kill(getpid(), SIGTERM);
    ASSERT_EQ(exit_.wait_for(kPatience), std::future_status::ready);
    EXPECT_EQ(exit_.get(), Server::Exit::kHurried);
}

class Signals : public ::testing::Environment {
    void SetUp() override { Server::take_signals(); }
};
const auto* const kSignals = ::testing::AddGlobalTestEnvironment(new Signals);

}  // namespace
