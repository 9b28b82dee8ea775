// One connection to the state store, over TLS or plain TCP. Debian 12's hiredis (0.14) has no TLS, so OpenSSL
// transports the bytes and hiredis implements the protocol (client.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace voice::valkey {

struct Endpoint {
    std::string host;
    // read at every connect, because a restored store has another name; if empty, `host` is used
    std::string host_file;
    std::uint16_t port = 6379;
    std::string user;
    std::string password_file;  // read at every connect, because the password rotates; if empty, there is no login
    bool tls = true;
    std::string ca_file;  // empty: the system's certificate authorities
    std::chrono::milliseconds timeout{1000};  // for a connect, and for each read and write
};

// Every call ends within the endpoint's time-out. TLS writes with write(2): its thread must block or ignore SIGPIPE.
class Link {
public:
    virtual ~Link() = default;
    // Sends everything, or returns false.
    virtual bool send(std::span<const char> bytes) = 0;
    // Receives at least a byte, or returns 0.
    virtual std::size_t receive(std::span<char> into) = 0;
};

// Connects; on failure null, and a reason in `error`.
std::unique_ptr<Link> connect(const Endpoint& endpoint, std::string& error);

}  // namespace voice::valkey
