// The maps of the XDP program on an interface. DPDK's AF_XDP driver loads and attaches it, and leaves it behind if the
// process is killed.
//
// Needs CAP_BPF and CAP_NET_ADMIN.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "support/descriptor.hpp"
#include "xdp/steer.h"

struct ring_buffer;

namespace voice::xdp {

using Sources = std::array<std::uint64_t, VOICE_STEER_SOURCES>;
using Counts = std::array<std::uint64_t, VOICE_STEER_COUNTS>;

// poll_requests() is for one thread; all other functions are thread-safe.
class SteerMaps {
public:
    // Null and a reason if the interface does not run our program.
    static std::unique_ptr<SteerMaps> open(const std::string& interface, std::string& error);

    // Removes our program from an interface where an earlier process left it. Another program stays, and is an error.
    static bool remove_leftover(const std::string& interface, std::string& error);

    SteerMaps(const SteerMaps&) = delete;
    SteerMaps& operator=(const SteerMaps&) = delete;
    ~SteerMaps();

    bool configure(const voice_steer_settings& settings) noexcept;

    // Admits its packets from now on; `slot`: less than VOICE_STEER_SESSIONS, and unique to the session.
    bool admit(std::uint32_t ssrc, std::uint32_t slot) noexcept;
    bool block(std::uint32_t ssrc) noexcept;
    // True also if it was not there.
    bool remove(std::uint32_t ssrc) noexcept;

    // Sets the last known source addresses of a session; no system call.
    void set_sources(std::uint32_t slot, const Sources& sources) noexcept;
    // A packet from another address was authenticated: returns its cost to the strangers' allowance. No system call.
    void pay_back(std::uint32_t slot) noexcept;

    // Sums over the CPUs.
    [[nodiscard]] Counts counts() const;

    // Passes on the waiting requests, or the first that arrive within the limit; the callback returns false when it
    // accepts no more for now.
    void poll_requests(std::chrono::milliseconds limit,
                       const std::function<bool(const voice_steer_admission&)>& callback);

private:
    SteerMaps() = default;
    bool take_maps(int program, std::string& error);
    Descriptor* slot_of(std::string_view map) noexcept;
    bool put(std::uint32_t ssrc, const voice_steer_session& session) noexcept;

    struct FreeRequests {
        void operator()(ring_buffer* requests) const noexcept;
    };
    static int on_request(void* self, void* data, std::size_t bytes);

    Descriptor sessions_;
    Descriptor settings_;
    Descriptor counts_;
    Descriptor admissions_;
    Descriptor senders_map_;
    voice_steer_senders* senders_ = nullptr;  // the map, in memory shared with the kernel
    std::unique_ptr<ring_buffer, FreeRequests> requests_;
    const std::function<bool(const voice_steer_admission&)>* callback_ = nullptr;  // during poll_requests()
};

}  // namespace voice::xdp
