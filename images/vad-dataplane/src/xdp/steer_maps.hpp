// The XDP program in the kernel: loads it, attaches it to an interface, and works on its maps.
//
// It attaches with a BPF link, which the kernel removes when the process ends, however it ends: the interface is left
// as it was. libxdp's dispatcher is not used: it leaves its program behind when the process is killed, and it needs
// bpffs.
//
// Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, without which the verifier refuses pointer arithmetic of this kind.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "support/descriptor.hpp"
#include "xdp/steer.h"

struct bpf_map;
struct ring_buffer;
struct steer_bpf;

namespace voice::xdp {

enum class Mode : std::uint8_t {
    kNative,   // in the driver
    kGeneric,  // in the kernel's network stack, for drivers without XDP; slower
};

using Counts = std::array<std::uint64_t, VOICE_STEER_COUNTS>;

// poll_requests() is for one thread; everything else may be called from any.
class SteerLoader {
public:
    // Loads a program with maps of its own. Null and a reason when that fails.
    static std::unique_ptr<SteerLoader> load(std::string& error);

    // Works on the maps of the program that is attached to the interface already: DPDK's AF_XDP driver loads and
    // attaches the program that it is given by itself.
    static std::unique_ptr<SteerLoader> adopt(const std::string& interface, std::string& error);

    // Removes our program from an interface where an earlier process left it without a link, as DPDK does when it is
    // killed. Another's program stays, and is an error.
    static bool remove_leftover(const std::string& interface, std::string& error);

    SteerLoader(const SteerLoader&) = delete;
    SteerLoader& operator=(const SteerLoader&) = delete;
    ~SteerLoader();

    // Fails where a program is attached already.
    bool attach(const std::string& interface, Mode mode, std::string& error);
    void detach() noexcept { link_.reset(); }
    [[nodiscard]] bool is_attached() const noexcept { return link_.is_open(); }

    bool configure(const voice_steer_settings& settings) noexcept;
    // Leads a queue's audio to an AF_XDP socket.
    bool bind_socket(std::uint32_t queue, int socket) noexcept;
    // For libxdp's xsk_socket__update_xskmap().
    [[nodiscard]] int sockets_map() const noexcept { return sockets_.get(); }

    bool admit(std::uint32_t ssrc) noexcept;
    bool block(std::uint32_t ssrc) noexcept;
    // True also when it was not there.
    bool remove(std::uint32_t ssrc) noexcept;
    [[nodiscard]] std::optional<voice_steer_session> find(std::uint32_t ssrc) const noexcept;
    void each(const std::function<void(std::uint32_t, const voice_steer_session&)>& callback) const;

    // Sums over the CPUs.
    [[nodiscard]] Counts counts() const;

    // Hands over the requests that are there, or the first that come within the limit; the callback returns false when
    // it takes no more for now.
    void poll_requests(std::chrono::milliseconds limit,
                       const std::function<bool(const voice_steer_admission&)>& callback);

private:
    SteerLoader() = default;
    bool open_requests(std::string& error);
    bool take_maps(int program, std::string& error);
    Descriptor* slot_of(std::string_view map) noexcept;
    bool put(std::uint32_t ssrc, bool blocked) noexcept;

    struct FreeProgram {
        void operator()(steer_bpf* program) const noexcept;
    };
    struct FreeRequests {
        void operator()(ring_buffer* requests) const noexcept;
    };
    static int on_request(void* self, void* data, std::size_t bytes);

    std::unique_ptr<steer_bpf, FreeProgram> program_;  // null when it was adopted
    Descriptor link_;
    Descriptor sockets_;
    Descriptor sessions_;
    Descriptor settings_;
    Descriptor counts_;
    Descriptor admissions_;
    std::unique_ptr<ring_buffer, FreeRequests> requests_;
    const std::function<bool(const voice_steer_admission&)>* callback_ = nullptr;  // while poll_requests() runs
};

}  // namespace voice::xdp
