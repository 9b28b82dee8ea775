#include "support/privileges.hpp"

#include <linux/bpf.h>
#include <seccomp.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace voice {
namespace {

constexpr std::array kRefused{
    SCMP_SYS(execve), SCMP_SYS(execveat),                                                           //
    SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(pidfd_getfd),  //
    SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(open_tree),
    SCMP_SYS(move_mount), SCMP_SYS(fsopen), SCMP_SYS(fsmount), SCMP_SYS(open_by_handle_at),  //
    SCMP_SYS(setns), SCMP_SYS(unshare),                                                      //
    SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),  //
    SCMP_SYS(perf_event_open), SCMP_SYS(userfaultfd), SCMP_SYS(keyctl), SCMP_SYS(add_key), SCMP_SYS(request_key),
    SCMP_SYS(io_uring_setup),  // its operations bypass the filter
};

void check(int error) {
    if (error != 0) {
        throw std::runtime_error(std::string("the filter of system calls: ") + std::strerror(-error));
    }
}

}  // namespace

void confine() {
    const std::unique_ptr<void, void (*)(scmp_filter_ctx)> filter(seccomp_init(SCMP_ACT_ALLOW), seccomp_release);
    if (!filter) {
        check(-ENOMEM);
    }
    check(seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_TSYNC, 1));
    for (const int call : kRefused) {
        check(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), call, 0));
    }
    // Sessions must still be written to the maps of the running program.
    const scmp_arg_cmp other_command{.arg = 0, .op = SCMP_CMP_GT, .datum_a = BPF_MAP_DELETE_ELEM, .datum_b = 0};
    check(seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(EPERM), SCMP_SYS(bpf), 1, other_command));
    check(seccomp_load(filter.get()));
}

}  // namespace voice
