// One connection to the control socket or to the health port, driven by the control thread's epoll.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "control/commands.hpp"
#include "control/listener.hpp"

namespace voice::control {

class Connection {
public:
    using Clock = std::chrono::steady_clock;
    enum class Kind : std::uint8_t { kControl, kHealth };

    Connection(Descriptor socket, Kind kind, Clock::time_point now) noexcept;

    // Called when the socket is readable, writable or broken. False: the connection is finished.
    bool serve(DataPlane& data_plane, bool& drain, Clock::time_point now);

    [[nodiscard]] bool wants_to_write() const noexcept { return !out_.empty(); }
    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    [[nodiscard]] Clock::time_point used() const noexcept { return used_; }

private:
    bool receive();
    bool flush();
    void answer_lines(DataPlane& data_plane, bool& drain);
    void answer_health();

    Descriptor socket_;
    Kind kind_;
    Rights rights_;
    Clock::time_point used_;
    std::string in_;
    std::string out_;
    bool ending_ = false;  // closes once everything is written
};

}  // namespace voice::control
