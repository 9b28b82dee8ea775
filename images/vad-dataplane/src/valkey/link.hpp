// One connection to the state store: bytes, over TLS or plain. Debian 12's hiredis (0.14) has no TLS, so OpenSSL
// carries the bytes and hiredis reads and writes the protocol (client.hpp).
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
    std::string host_file;  // read at every connect, since a restored store has another name; empty: `host` is it
    std::uint16_t port = 6379;
    std::string user;
    std::string password_file;  // read at every connect, since the password rotates; empty: no login
    bool tls = true;
    std::string ca_file;  // empty: the system's certificate authorities
    std::chrono::milliseconds timeout{1000};  // for a connect, and for every read and write
};

// Every call ends within the endpoint's timeout. TLS writes with write(2): its thread blocks or ignores SIGPIPE.
class Link {
public:
    virtual ~Link() = default;
    // Sends everything, or returns false.
    virtual bool send(std::span<const char> bytes) = 0;
    // Receives at least a byte, or returns 0.
    virtual std::size_t receive(std::span<char> into) = 0;
};

// Connects; null and a reason in `error` when that fails.
std::unique_ptr<Link> connect(const Endpoint& endpoint, std::string& error);

}  // namespace voice::valkey
