// The maps of the XDP program that runs on an interface. DPDK's AF_XDP driver loads and attaches it, and leaves it behind
// when the process is killed.
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

using Counts = std::array<std::uint64_t, VOICE_STEER_COUNTS>;

// poll_requests() is for one thread; everything else may be called from any.
class SteerMaps {
public:
    // Null and a reason where the interface does not run our program.
    static std::unique_ptr<SteerMaps> open(const std::string& interface, std::string& error);

    // Removes our program from an interface where an earlier process left it. Another's program stays, and is an error.
    static bool remove_leftover(const std::string& interface, std::string& error);

    SteerMaps(const SteerMaps&) = delete;
    SteerMaps& operator=(const SteerMaps&) = delete;
    ~SteerMaps();

    bool configure(const voice_steer_settings& settings) noexcept;

    // Its packets pass from now on; `slot`: less than VOICE_STEER_SESSIONS, and no other session's.
    bool admit(std::uint32_t ssrc, std::uint32_t slot) noexcept;
    bool block(std::uint32_t ssrc) noexcept;
    // True also when it was not there.
    bool remove(std::uint32_t ssrc) noexcept;

    // Says where a session's sender is; no system call.
    void set_source(std::uint32_t slot, std::uint64_t source) noexcept {
        sources_[slot].store(source, std::memory_order_relaxed);
    }

    // Sums over the CPUs.
    [[nodiscard]] Counts counts() const;

    // Hands over the requests that are there, or the first that come within the limit; the callback returns false when
    // it takes no more for now.
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
    Descriptor sources_map_;
    std::atomic<std::uint64_t>* sources_ = nullptr;  // the map, in memory that is shared with the kernel
    std::unique_ptr<ring_buffer, FreeRequests> requests_;
    const std::function<bool(const voice_steer_admission&)>* callback_ = nullptr;  // while poll_requests() runs
};

}  // namespace voice::xdp
