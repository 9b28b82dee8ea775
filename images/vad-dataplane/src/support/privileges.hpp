// What the program gives away once it has started: what remains is what a stranger's packet could use against the host.
#pragma once

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace voice {

// Takes every capability from the calling thread, and from those that it starts.
inline void drop_capabilities() noexcept {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
    syscall(SYS_capset, &header, none.data());  // fewer are never refused
}

// Refuses, in every thread and for good, system calls that are of use to an intruder alone: other programs, other
// processes' memory, mounts, namespaces, kernel modules, new BPF programs. Throws std::runtime_error.
void confine();

}  // namespace voice
