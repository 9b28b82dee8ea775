#include "valkey/link.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "support/descriptor.hpp"

namespace voice::valkey {
namespace {

class PlainLink final : public Link {
public:
    explicit PlainLink(Descriptor socket) noexcept : socket_(std::move(socket)) {}

    bool send(std::span<const char> bytes) override {
        while (!bytes.empty()) {
            const auto sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) {
                continue;
            }
            if (sent <= 0) {
                return false;
            }
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        }
        return true;
    }

    std::size_t receive(std::span<char> into) override {
        ssize_t got = 0;
        do {
            got = recv(socket_.get(), into.data(), into.size(), 0);
        } while (got < 0 && errno == EINTR);
        return got > 0 ? static_cast<std::size_t>(got) : 0;
    }

private:
    Descriptor socket_;
};

struct FreeTls {
    void operator()(SSL* tls) const noexcept { SSL_free(tls); }
    void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
};
using Tls = std::unique_ptr<SSL, FreeTls>;
using TlsContext = std::unique_ptr<SSL_CTX, FreeTls>;

class TlsLink final : public Link {
public:
    TlsLink(Descriptor socket, Tls tls) noexcept : socket_(std::move(socket)), tls_(std::move(tls)) {}

    bool send(std::span<const char> bytes) override {
        std::size_t sent = 0;
        return bytes.empty() || SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &sent) == 1;
    }

    std::size_t receive(std::span<char> into) override {
        std::size_t got = 0;
        return SSL_read_ex(tls_.get(), into.data(), into.size(), &got) == 1 ? got : 0;
    }

private:
    Descriptor socket_;  // must outlive the TLS session that writes to it
    Tls tls_;
};

std::string tls_error() {
    char text[256] = "connection closed, or the timeout passed";
    if (const auto code = ERR_get_error()) {
        ERR_error_string_n(code, text, sizeof text);
    }
    ERR_clear_error();
    return text;
}

void set_timeouts(int fd, std::chrono::milliseconds timeout) {
    const timeval limit{.tv_sec = timeout.count() / 1000, .tv_usec = timeout.count() % 1000 * 1000};
    // The send time-out also applies to connect().
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Descriptor connect_tcp(const Endpoint& endpoint, std::string& error) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int failed = getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
    if (failed != 0) {
        error = gai_strerror(failed);
        return Descriptor();
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
    for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
        Descriptor socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
        if (!socket.is_open()) {
            error = std::strerror(errno);
            continue;
        }
        set_timeouts(socket.get(), endpoint.timeout);
        if (::connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0) {
            return socket;
        }
        error = errno == EINPROGRESS ? "the timeout passed" : std::strerror(errno);
    }
    return Descriptor();
}

// The certificate must match the endpoint's name or, if the endpoint is an address, its address.
bool require_name(SSL* tls, const std::string& host) {
    in6_addr address{};
    if (inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) == 1;
    }
    return SSL_set1_host(tls, host.c_str()) == 1 && SSL_set_tlsext_host_name(tls, host.c_str()) == 1;
}

std::unique_ptr<Link> secure(Descriptor socket, const Endpoint& endpoint, std::string& error) {
    const TlsContext context(SSL_CTX_new(TLS_client_method()));
    const bool trusts = context && (endpoint.ca_file.empty()
        ? SSL_CTX_set_default_verify_paths(context.get())
        : SSL_CTX_load_verify_file(context.get(), endpoint.ca_file.c_str())) == 1;
    if (!trusts || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
        error = "TLS set-up: " + tls_error();
        return nullptr;
    }
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    Tls tls(SSL_new(context.get()));
    if (!tls || !require_name(tls.get(), endpoint.host) || SSL_set_fd(tls.get(), socket.get()) != 1 ||
        SSL_connect(tls.get()) != 1) {
        error = "TLS: " + tls_error();
        return nullptr;
    }
    return std::make_unique<TlsLink>(std::move(socket), std::move(tls));
}

}  // namespace

std::unique_ptr<Link> connect(const Endpoint& endpoint, std::string& error) {
    Descriptor socket = connect_tcp(endpoint, error);
    if (!socket.is_open()) {
        return nullptr;
    }
    if (endpoint.tls) {
        return secure(std::move(socket), endpoint, error);
    }
    return std::make_unique<PlainLink>(std::move(socket));
}

}  // namespace voice::valkey
