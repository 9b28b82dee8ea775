#include "xdp/steer_maps.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace voice::xdp {
namespace {

constexpr std::string_view kProgramName = "steer";
constexpr std::array<std::string_view, 5> kMapNames{"sessions", "settings", "counts", "admissions", "senders"};
constexpr std::size_t kSendersBytes = VOICE_STEER_SESSIONS * sizeof(voice_steer_senders);
static_assert(std::atomic_ref<__u64>::is_always_lock_free, "a lock would belong to one side");

std::string reason(const std::string& what) { return what + ": " + std::strerror(errno); }

std::optional<int> index_of(const std::string& interface, std::string& error) {
    const auto index = if_nametoindex(interface.c_str());
    if (index == 0) {
        error = reason("interface " + interface);
        return std::nullopt;
    }
    return static_cast<int>(index);
}

// The program on an interface, in any mode; closed if there is none.
Descriptor attached_program(int interface, bpf_prog_info& info) {
    bpf_xdp_query_opts query{};
    query.sz = sizeof query;
    if (bpf_xdp_query(interface, 0, &query) != 0) {
        return Descriptor();
    }
    const auto id = query.drv_prog_id != 0 ? query.drv_prog_id : query.skb_prog_id;
    Descriptor program(id == 0 ? -1 : bpf_prog_get_fd_by_id(id));
    __u32 bytes = sizeof info;
    if (program.is_open() && bpf_obj_get_info_by_fd(program.get(), &info, &bytes) != 0) {
        program.reset();
    }
    return program;
}

}  // namespace

void SteerMaps::FreeRequests::operator()(ring_buffer* requests) const noexcept { ring_buffer__free(requests); }

SteerMaps::~SteerMaps() {
    if (senders_ != nullptr) {
        munmap(senders_, kSendersBytes);
    }
}

std::unique_ptr<SteerMaps> SteerMaps::open(const std::string& interface, std::string& error) {
    const auto index = index_of(interface, error);
    if (!index) {
        return nullptr;
    }
    bpf_prog_info info{};
    const auto program = attached_program(*index, info);
    if (!program.is_open() || kProgramName != info.name) {
        error = "interface " + interface + " does not run our XDP program";
        return nullptr;
    }
    std::unique_ptr<SteerMaps> maps(new SteerMaps());
    return maps->take_maps(program.get(), error) ? std::move(maps) : nullptr;
}

bool SteerMaps::remove_leftover(const std::string& interface, std::string& error) {
    const auto index = index_of(interface, error);
    if (!index) {
        return false;
    }
    bpf_prog_info info{};
    const auto program = attached_program(*index, info);
    if (!program.is_open()) {
        return true;
    }
    if (kProgramName != info.name) {
        error = "interface " + interface + " runs another XDP program, " + info.name;
        return false;
    }
    if (bpf_xdp_detach(*index, 0, nullptr) != 0) {
        error = reason("interface " + interface + " runs our XDP program for another process");
        return false;
    }
    return true;
}

bool SteerMaps::take_maps(int program, std::string& error) {
    std::array<__u32, 16> ids{};
    bpf_prog_info info{};
    info.nr_map_ids = ids.size();
    info.map_ids = reinterpret_cast<__u64>(ids.data());
    __u32 bytes = sizeof info;
    if (bpf_obj_get_info_by_fd(program, &info, &bytes) != 0) {
        error = reason("reading the XDP program's maps");
        return false;
    }
    for (const auto id : std::span(ids).first(std::min<std::size_t>(ids.size(), info.nr_map_ids))) {
        Descriptor map(bpf_map_get_fd_by_id(id));
        bpf_map_info about{};
        __u32 about_bytes = sizeof about;
        if (map.is_open() && bpf_obj_get_info_by_fd(map.get(), &about, &about_bytes) == 0) {
            if (auto* slot = slot_of(about.name)) {
                *slot = std::move(map);
            }
        }
    }
    for (const auto name : kMapNames) {
        if (!slot_of(name)->is_open()) {
            error = "the XDP program's map " + std::string(name) + " cannot be opened";
            return false;
        }
    }
    void* senders = mmap(nullptr, kSendersBytes, PROT_READ | PROT_WRITE, MAP_SHARED, senders_map_.get(), 0);
    requests_.reset(ring_buffer__new(admissions_.get(), on_request, this, nullptr));
    if (senders == MAP_FAILED || !requests_) {
        error = reason("the XDP program's shared memory");
        return false;
    }
    senders_ = static_cast<voice_steer_senders*>(senders);
    return true;
}

Descriptor* SteerMaps::slot_of(std::string_view map) noexcept {
    const std::array<Descriptor*, kMapNames.size()> slots{&sessions_, &settings_, &counts_, &admissions_,
                                                              &senders_map_};
    const auto found = std::find(kMapNames.begin(), kMapNames.end(), map);
    return found == kMapNames.end() ? nullptr : slots[static_cast<std::size_t>(found - kMapNames.begin())];
}

bool SteerMaps::configure(const voice_steer_settings& settings) noexcept {
    const __u32 zero = 0;
    return bpf_map_update_elem(settings_.get(), &zero, &settings, BPF_ANY) == 0;
}

bool SteerMaps::put(std::uint32_t ssrc, const voice_steer_session& session) noexcept {
    return bpf_map_update_elem(sessions_.get(), &ssrc, &session, BPF_ANY) == 0;
}

bool SteerMaps::admit(std::uint32_t ssrc, std::uint32_t slot) noexcept {
    set_sources(slot, {});
    std::atomic_ref(senders_[slot].others_paid_ns).store(0, std::memory_order_relaxed);
    return put(ssrc, {.known_paid_ns = 0, .slot = slot, .blocked = 0});
}

void SteerMaps::set_sources(std::uint32_t slot, const Sources& sources) noexcept {
    for (std::size_t i = 0; i < sources.size(); ++i) {
        std::atomic_ref(senders_[slot].sources[i]).store(sources[i], std::memory_order_relaxed);
    }
}

void SteerMaps::pay_back(std::uint32_t slot) noexcept {
    // The kernel may charge the same word at that moment, and one update is lost, which changes the allowance by a
    // packet.
    std::atomic_ref paid_ns(senders_[slot].others_paid_ns);
    paid_ns.store(voice_paid_back(paid_ns.load(std::memory_order_relaxed), VOICE_STRANGERS_PER_S),
                  std::memory_order_relaxed);
}

bool SteerMaps::block(std::uint32_t ssrc) noexcept {
    return put(ssrc, {.known_paid_ns = 0, .slot = 0, .blocked = 1});
}

bool SteerMaps::remove(std::uint32_t ssrc) noexcept {
    return bpf_map_delete_elem(sessions_.get(), &ssrc) == 0 || errno == ENOENT;
}

Counts SteerMaps::counts() const {
    Counts counts{};
    std::vector<std::uint64_t> per_cpu(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    for (__u32 what = 0; what < counts.size(); ++what) {
        if (bpf_map_lookup_elem(counts_.get(), &what, per_cpu.data()) == 0) {
            counts[what] = std::accumulate(per_cpu.begin(), per_cpu.end(), std::uint64_t{0});
        }
    }
    return counts;
}

int SteerMaps::on_request(void* self, void* data, std::size_t bytes) {
    const auto* loader = static_cast<SteerMaps*>(self);
    if (bytes != sizeof(voice_steer_admission)) {
        return 0;
    }
    // A negative value ends the round; this request counts as taken.
    return (*loader->callback_)(*static_cast<const voice_steer_admission*>(data)) ? 0 : -ENOSPC;
}

void SteerMaps::poll_requests(std::chrono::milliseconds limit,
                                const std::function<bool(const voice_steer_admission&)>& callback) {
    callback_ = &callback;
    // Requests left by an earlier round wake no thread, so they are taken first.
    if (ring_buffer__consume(requests_.get()) == 0) {
        ring_buffer__poll(requests_.get(), static_cast<int>(limit.count()));
    }
    callback_ = nullptr;
}

}  // namespace voice::xdp
