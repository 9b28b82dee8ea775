// Listening sockets of the control thread.
#pragma once

#include <cstdint>
#include <string>

#include "support/descriptor.hpp"

namespace voice::control {

// A unix socket that its owner and group may use. One that a killed predecessor left is replaced; one that answers, and
// whatever is no socket, is not. Closed, with a reason, when that fails.
Descriptor listen_unix(const std::string& path, std::string& error);

// On every address.
Descriptor listen_tcp(std::uint16_t port, std::string& error);

}  // namespace voice::control
