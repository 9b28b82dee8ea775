// Threads that no signal interrupts: signals are the control thread's. SIGPIPE is among them, so that a broken
// connection is an error code. They read what comes from outside, and have no capability.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

#include "support/privileges.hpp"

namespace voice {

// `name`: what the kernel shows; 15 characters at most.
template <typename Body>
std::thread start_quiet_thread(const char* name, Body&& body) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread([body = std::forward<Body>(body)]() mutable {  // starts with this thread's mask
        drop_capabilities();
        body();
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace voice
