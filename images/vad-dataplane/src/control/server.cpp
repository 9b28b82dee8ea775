#include "control/server.hpp"

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace voice::control {
namespace {

sigset_t end_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    return signals;
}

}  // namespace

void Server::take_signals() {
    const auto signals = end_signals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

Server::~Server() {
    if (control_.is_open()) {
        unlink(settings_.control_socket.c_str());
    }
}

bool Server::open(std::string& error) {
    const auto signals = end_signals();
    epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    signals_ = Descriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!epoll_.is_open() || !signals_.is_open()) {
        error = std::string("the control thread: ") + std::strerror(errno);
        return false;
    }
    control_ = listen_unix(settings_.control_socket, error);
    return control_.is_open() && watch(signals_.get()) && watch(control_.get());
}

bool Server::watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

Server::Exit Server::run() {
    std::array<epoll_event, 16> events{};
    for (;;) {
        follow_health();
        const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                     static_cast<int>(settings_.tick.count()));
        for (int i = 0; i < ready; ++i) {
            serve(events[static_cast<std::size_t>(i)].data.fd);
        }
        close_idle();
        if (is_over()) {
            health_.reset();
            return exit_;
        }
    }
}

void Server::serve(int fd) {
    if (fd == signals_.get()) {
        read_signal();
    } else if (fd == control_.get()) {
        accept_from(control_, Connection::Kind::kControl);
    } else if (fd == health_.get()) {
        accept_from(health_, Connection::Kind::kHealth);
    } else if (const auto found = connections_.find(fd); found != connections_.end()) {
        bool wants_drain = false;
        if (!found->second.serve(data_plane_, wants_drain, Clock::now())) {
            connections_.erase(found);  // closing it removes it from the epoll set
        } else {
            epoll_event event{};
            event.events = found->second.wants_to_write() ? EPOLLOUT : EPOLLIN;
            event.data.fd = fd;
            epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
        }
        if (wants_drain) {
            drain();
        }
    }
}

void Server::accept_from(const Descriptor& listener, Connection::Kind kind) {
    Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) {
        return;
    }
    if (connections_.size() >= kMostConnections) {
        drop_oldest();
    }
    const int fd = socket.get();
    if (watch(fd)) {
        connections_.try_emplace(fd, std::move(socket), kind, Clock::now());
    }
}

void Server::drop_oldest() {
    const auto older = [](const auto& left, const auto& right) { return left.second.used() < right.second.used(); };
    connections_.erase(std::min_element(connections_.begin(), connections_.end(), older));
}

void Server::read_signal() {
    signalfd_siginfo signal{};
    while (read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
        hurried_ = signalled_;  // the command alone, before the first signal, does not hurry
        signalled_ = true;
        drain();
    }
}

void Server::drain() {
    if (!draining_) {
        draining_ = true;
        drain_until_ = Clock::now() + settings_.drain_timeout;
        data_plane_.begin_drain();
        follow_health();
    }
}

void Server::follow_health() {
    const bool healthy = !draining_ && data_plane_.can_flow();
    data_plane_.set_healthy(healthy);
    if (!healthy) {
        health_.reset();
    } else if (!health_.is_open()) {
        std::string error;  // the port is taken: the load balancer notices, and the next tick tries again
        health_ = listen_tcp(settings_.health_port, error);
        if (health_.is_open() && !watch(health_.get())) {
            health_.reset();
        }
    }
}

void Server::close_idle() {
    const auto now = Clock::now();
    std::erase_if(connections_, [&](const auto& each) { return now - each.second.used() >= settings_.idle; });
}

bool Server::is_over() {
    if (!draining_) {
        return false;
    }
    if (hurried_) {
        exit_ = Exit::kHurried;
    } else if (data_plane_.is_drained()) {
        exit_ = Exit::kDrained;
    } else if (Clock::now() >= drain_until_) {
        exit_ = Exit::kTimedOut;
    } else {
        return false;
    }
    return true;
}

}  // namespace voice::control
