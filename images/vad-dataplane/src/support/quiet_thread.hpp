// Threads without signals, which the control thread handles. SIGPIPE is blocked as well, so that a broken connection is
// an error code. These threads read external input, and have no capabilities.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

#include "support/privileges.hpp"

namespace voice {

// `name`: as the kernel shows it; 15 characters at most.
template <typename Body>
std::thread start_quiet_thread(const char* name, Body&& body) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread([body = std::forward<Body>(body)]() mutable {  // starts with this thread's signal mask
        drop_capabilities();
        body();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace voice
