// In separate processes: dropped privileges cannot be regained.
#include "support/privileges.hpp"

#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>

namespace voice {
namespace {

// The exit code is the errno of a call after the filter; 0 when it succeeded.
template <typename Call>
int errno_when_confined(Call&& call) {
    const pid_t child = fork();
    if (child == 0) {
        int found = 0;
        // A thread started earlier.
        std::atomic<bool> confined = false;
        std::thread before([&] {
            while (!confined) {
                std::this_thread::yield();
            }
            errno = 0;
            found = call() < 0 ? errno : 0;
        });
        confine();
        confined = true;
        before.join();
        std::_Exit(found);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

long bpf_call(int command) {
    bpf_attr attributes{};
    attributes.map_fd = ~0U;
    return syscall(SYS_bpf, command, &attributes, sizeof attributes);
}

TEST(Confined, StartsNoOtherProgram) {
    EXPECT_EQ(errno_when_confined([] { return execl("/bin/true", "true", nullptr); }), EPERM);
}

TEST(Confined, MakesNoNamespace) {
    EXPECT_EQ(errno_when_confined([] { return unshare(CLONE_NEWNET); }), EPERM);
}

TEST(Confined, LoadsNoBpfProgramAndGoesOnWritingIntoMaps) {
    EXPECT_EQ(errno_when_confined([] { return bpf_call(BPF_PROG_LOAD); }), EPERM);
    for (const int command : {BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, BPF_MAP_DELETE_ELEM}) {
        EXPECT_EQ(errno_when_confined([command] { return bpf_call(command); }), EBADF) << "the kernel has looked at it";
    }
}

TEST(Confined, StartsThreads) {
    EXPECT_EQ(errno_when_confined([] {
                  std::thread([] {}).join();
                  return 0;
              }),
              0);
}

TEST(WithoutCapabilities, AThreadAndThoseItStartsHaveNone) {
    std::thread([] {
        drop_capabilities();
        std::thread([] {
            __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
            std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> found{};
            ASSERT_EQ(syscall(SYS_capget, &header, found.data()), 0);
            for (const auto& each : found) {
                EXPECT_EQ(each.effective | each.permitted | each.inheritable, 0U);
            }
        }).join();
    }).join();
}

}  // namespace
}  // namespace voice
