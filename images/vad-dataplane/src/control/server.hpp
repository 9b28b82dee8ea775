// The control thread: control socket, health port, signals, drain.
//
// The health port listens only while packets can flow. Otherwise a connection is refused, which every kind of load
// balancer's check understands.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "control/connection.hpp"

namespace voice::control {

class Server {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t kMostConnections = 64;

    struct Settings {
        std::string control_socket;
        std::uint16_t health_port = 8081;
        std::chrono::milliseconds drain_timeout{110'000};
        std::chrono::milliseconds tick{100};  // the interval at which the health port follows the state
        std::chrono::milliseconds idle{10'000};  // a connection that sends nothing is closed
    };

    enum class Exit : std::uint8_t {
        kDrained,
        kTimedOut,  // sessions were left at the end of the drain time-out
        kHurried,   // a second SIGTERM or SIGINT
    };

    // Call in main() before any thread starts: SIGTERM and SIGINT then reach only the control thread, and a broken
    // connection is an error code instead of SIGPIPE.
    static void take_signals();

    Server(Settings settings, DataPlane& data_plane) : settings_(std::move(settings)), data_plane_(data_plane) {}
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;
    ~Server();

    // False and a reason when it cannot listen.
    bool open(std::string& error);

    // Serves until the program has drained.
    Exit run();

private:
    bool watch(int fd);
    void serve(int fd);
    void accept_from(const Descriptor& listener, Connection::Kind kind);
    void drop_oldest();
    void read_signal();
    void drain();
    void follow_health();
    void close_idle();
    [[nodiscard]] bool is_over();

    Settings settings_;
    DataPlane& data_plane_;
    Descriptor epoll_;
    Descriptor signals_;
    Descriptor control_;
    Descriptor health_;
    std::map<int, Connection> connections_;
    bool draining_ = false;
    bool signalled_ = false;
    Clock::time_point drain_until_{};
    Exit exit_ = Exit::kDrained;
    bool hurried_ = false;
};

}  // namespace voice::control
