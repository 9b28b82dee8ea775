#include "receive/socket_queue.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace voice::receive {
namespace {

constexpr int kReceiveBufferBytes = 4 << 20;  // half a second of 4,000 streams' audio would be 65 MB: best effort

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::system_category(), what); }

}  // namespace

SocketQueue::SocketQueue(const std::string& address, std::uint16_t port) : buffers_(kBatch) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) {
        throw std::system_error(EINVAL, std::system_category(), address + " is no IPv4 address");
    }
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket_ < 0) {
        fail("a UDP socket");
    }
    const int on = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &kReceiveBufferBytes, sizeof kReceiveBufferBytes);
    if (bind(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
        const int why = errno;
        close(socket_);
        errno = why;
        fail("listening on " + address + ":" + std::to_string(port));
    }
    socklen_t length = sizeof to;
    getsockname(socket_, reinterpret_cast<sockaddr*>(&to), &length);
    port_ = ntohs(to.sin_port);
    for (std::size_t i = 0; i < kBatch; ++i) {
        vectors_[i] = {.iov_base = buffers_[i].data(), .iov_len = kDatagramBytes};
        headers_[i].msg_hdr.msg_name = &sources_[i];
        headers_[i].msg_hdr.msg_namelen = sizeof sources_[i];
        headers_[i].msg_hdr.msg_iov = &vectors_[i];
        headers_[i].msg_hdr.msg_iovlen = 1;
    }
}

SocketQueue::~SocketQueue() { close(socket_); }

std::size_t SocketQueue::receive() noexcept {
    const int received = recvmmsg(socket_, headers_.data(), kBatch, MSG_DONTWAIT, nullptr);
    return received > 0 ? static_cast<std::size_t>(received) : 0;
}

}  // namespace voice::receive
