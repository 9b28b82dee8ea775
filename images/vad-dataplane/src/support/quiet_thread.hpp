// Threads that no signal interrupts: signals are the control thread's. SIGPIPE is among them, so that a broken
// connection is an error code.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace voice {

// `name`: what the kernel shows; 15 characters at most.
template <typename Body>
std::thread start_quiet_thread(const char* name, Body&& body) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(std::forward<Body>(body));  // starts with this thread's mask
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace voice
