// ICMP errors of an unconnected socket: which datagrams were refused, and by whom (IP_RECVERR, ip(7)).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
// After netinet/in.h, which it needs.
#include <linux/errqueue.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace voice::ship {

// Calls for the address of each datagram that a host refused since the last call; returns the number of errors from the
// network. They concern earlier datagrams, not the one of a send call that has just failed.
template <typename Callback>
std::size_t take_refusals(int socket, Callback&& refused) noexcept {
    std::size_t count = 0;
    for (;;) {
        sockaddr_in to{};
        alignas(cmsghdr) std::array<std::byte, 256> control{};
        msghdr message{};
        message.msg_name = &to;
        message.msg_namelen = sizeof to;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        if (recvmsg(socket, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
            return count;
        }
        bool has_error = false;
        for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
            if (part->cmsg_level != IPPROTO_IP || part->cmsg_type != IP_RECVERR) {
                continue;
            }
            has_error = true;
            const auto* error = reinterpret_cast<const sock_extended_err*>(CMSG_DATA(part));
            count += error->ee_origin == SO_EE_ORIGIN_ICMP ? 1 : 0;
            if (error->ee_origin == SO_EE_ORIGIN_ICMP && error->ee_errno == ECONNREFUSED) {
                refused(to);
            }
        }
        // A message without an error is not from the error queue: some kernels, and qemu-user, succeed when it is
        // empty.
        if (!has_error) {
            return count;
        }
    }
}

}  // namespace voice::ship
