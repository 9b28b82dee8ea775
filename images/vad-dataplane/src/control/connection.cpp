#include "control/connection.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace voice::control {
namespace {

constexpr std::string_view kHealthy =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
constexpr std::size_t kMostWaiting = 1 << 20;  // bytes of responses that a client has not read

// The kernel reports who connected.
Rights rights_of(int socket) noexcept {
    ucred caller{};
    socklen_t size = sizeof caller;
    const bool known = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &caller, &size) == 0;
    return known && caller.uid == geteuid() ? Rights::kChange : Rights::kRead;
}

}  // namespace

Connection::Connection(Descriptor socket, Kind kind, Clock::time_point now) noexcept
    : socket_(std::move(socket)), kind_(kind), rights_(rights_of(socket_.get())), used_(now) {}

bool Connection::serve(DataPlane& data_plane, bool& drain, Clock::time_point now) {
    used_ = now;
    const bool open = receive();
    if (kind_ == Kind::kControl) {
        answer_lines(data_plane, drain);
    } else {
        answer_health();
    }
    // A client that has shut down its side still gets its responses.
    return flush() && out_.size() <= kMostWaiting && (open || !out_.empty()) && !(ending_ && out_.empty());
}

// False when the peer has closed.
bool Connection::receive() {
    std::array<char, 4096> bytes;
    // One read: remaining data wakes the thread again, so that one client cannot monopolize it.
    const auto got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
        in_.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

bool Connection::flush() {
    while (!out_.empty()) {
        const auto sent = send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        out_.erase(0, static_cast<std::size_t>(sent));
    }
    return true;
}

void Connection::answer_lines(DataPlane& data_plane, bool& drain) {
    for (std::size_t end = in_.find('\n'); end != std::string::npos && !ending_; end = in_.find('\n')) {
        auto reply = answer(std::string_view(in_).substr(0, end), rights_, data_plane);
        in_.erase(0, end + 1);
        drain = drain || reply.drain;
        out_ += reply.line + '\n';
    }
    if (in_.size() > kLongestRequest && !ending_) {
        // The start of the next request is unknown.
        out_ += answer(in_, rights_, data_plane).line + '\n';
        in_.clear();
        ending_ = true;
    }
}

// Answers any request. A check that only connects and closes gets no response, and needs none.
void Connection::answer_health() {
    if (!in_.empty() && !ending_) {
        out_ = kHealthy;
        ending_ = true;
    }
    in_.clear();
}

}  // namespace voice::control
