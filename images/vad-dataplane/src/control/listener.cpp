#include "control/listener.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

namespace voice::control {
namespace {

constexpr int kBacklog = 16;

std::string reason(const std::string& what) { return what + ": " + std::strerror(errno); }

std::optional<sockaddr_un> address_of(const std::string& path, std::string& error) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path) {
        error = path + ": a socket's path has 1 to " + std::to_string(sizeof address.sun_path - 1) + " bytes";
        return std::nullopt;
    }
    path.copy(address.sun_path, path.size());
    return address;
}

// Removes a socket that nobody listens on.
bool make_room(const std::string& path, const sockaddr_un& address, std::string& error) {
    struct stat about{};
    if (lstat(path.c_str(), &about) != 0) {
        return true;
    }
    if (!S_ISSOCK(about.st_mode)) {
        error = path + " is there, and no socket";
        return false;
    }
    const Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int failed = connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (failed == 0 || errno != ECONNREFUSED) {
        error = path + " is another process's";
        return false;
    }
    unlink(path.c_str());
    return true;
}

}  // namespace

Descriptor listen_unix(const std::string& path, std::string& error) {
    const auto address = address_of(path, error);
    if (!address || !make_room(path, *address, error)) {
        return Descriptor();
    }
    Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // No client can connect before listen(), so the permissions are set in time regardless of the umask.
    if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
        chmod(path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) != 0 ||
        listen(listener.get(), kBacklog) != 0) {
        error = reason(path);
        return Descriptor();
    }
    return listener;
}

Descriptor listen_tcp(std::uint16_t port, std::string& error) {
    Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    if (setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener.get(), kBacklog) != 0) {
        error = reason("TCP port " + std::to_string(port));
        return Descriptor();
    }
    return listener;
}

}  // namespace voice::control
