// Listening sockets of the control thread.
#pragma once

#include <cstdint>
#include <string>

#include "support/descriptor.hpp"

namespace voice::control {

// A unix socket for its owner and group. One left by a killed predecessor is replaced; an active one, or a path that is
// not a socket, is not. Closed, with a reason, on failure.
Descriptor listen_unix(const std::string& path, std::string& error);

// On every address.
Descriptor listen_tcp(std::uint16_t port, std::string& error);

}  // namespace voice::control
