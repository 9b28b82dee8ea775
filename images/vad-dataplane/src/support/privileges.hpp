// Privileges that the program drops after its start, so that an attacker's packet cannot use them against the host.
#pragma once

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace voice {

// Drops all capabilities of the calling thread, and of threads that it starts.
inline void drop_capabilities() noexcept {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
    syscall(SYS_capset, &header, none.data());  // reducing them never fails
}

// Blocks, in every thread and permanently, system calls that only an intruder needs: other programs, other processes'
// memory, mounts, namespaces, kernel modules, new BPF programs. Throws std::runtime_error.
void confine();

}  // namespace voice
