#include "xdp/steer_loader.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "steer.skel.h"

namespace voice::xdp {
namespace {

constexpr std::string_view kProgramName = "steer";
constexpr std::array<std::string_view, 5> kMapNames{"xsks_map", "sessions", "settings", "counts", "admissions"};
constexpr std::uint32_t kBatch = 1024;

std::string reason(const std::string& what) { return what + ": " + std::strerror(errno); }

// The time that the program stamps sessions with.
std::uint64_t monotonic_ns() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

std::optional<int> index_of(const std::string& interface, std::string& error) {
    const auto index = if_nametoindex(interface.c_str());
    if (index == 0) {
        error = reason("interface " + interface);
        return std::nullopt;
    }
    return static_cast<int>(index);
}

// The program on an interface, whatever its mode; closed when there is none.
Descriptor attached_program(int interface, bpf_prog_info& info) {
    LIBBPF_OPTS(bpf_xdp_query_opts, query);
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

void SteerLoader::FreeProgram::operator()(steer_bpf* program) const noexcept { steer_bpf__destroy(program); }
void SteerLoader::FreeRequests::operator()(ring_buffer* requests) const noexcept { ring_buffer__free(requests); }
SteerLoader::~SteerLoader() = default;

std::unique_ptr<SteerLoader> SteerLoader::load(std::string& error) {
    std::unique_ptr<SteerLoader> loader(new SteerLoader());
    loader->program_.reset(steer_bpf__open_and_load());
    if (!loader->program_) {
        error = reason("loading the XDP program (it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON)");
        return nullptr;
    }
    const bool taken = loader->take_maps(bpf_program__fd(loader->program_->progs.steer), error);
    return taken && loader->open_requests(error) ? std::move(loader) : nullptr;
}

std::unique_ptr<SteerLoader> SteerLoader::adopt(const std::string& interface, std::string& error) {
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
    std::unique_ptr<SteerLoader> loader(new SteerLoader());
    return loader->take_maps(program.get(), error) && loader->open_requests(error) ? std::move(loader) : nullptr;
}

bool SteerLoader::remove_leftover(const std::string& interface, std::string& error) {
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

bool SteerLoader::attach(const std::string& interface, Mode mode, std::string& error) {
    const auto index = index_of(interface, error);
    if (!index || !program_) {
        return false;
    }
    LIBBPF_OPTS(bpf_link_create_opts, options,
                .flags = mode == Mode::kNative ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
    link_ = Descriptor(bpf_link_create(bpf_program__fd(program_->progs.steer), *index, BPF_XDP, &options));
    if (!link_.is_open()) {
        error = reason("attaching the XDP program to " + interface);
        return false;
    }
    return true;
}

bool SteerLoader::take_maps(int program, std::string& error) {
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
    return true;
}

Descriptor* SteerLoader::slot_of(std::string_view map) noexcept {
    const std::array<Descriptor*, kMapNames.size()> slots{&sockets_, &sessions_, &settings_, &counts_, &admissions_};
    const auto found = std::find(kMapNames.begin(), kMapNames.end(), map);
    return found == kMapNames.end() ? nullptr : slots[static_cast<std::size_t>(found - kMapNames.begin())];
}

bool SteerLoader::open_requests(std::string& error) {
    requests_.reset(ring_buffer__new(admissions_.get(), on_request, this, nullptr));
    if (!requests_) {
        error = reason("the ring of admission requests");
    }
    return requests_ != nullptr;
}

bool SteerLoader::configure(const voice_steer_settings& settings) noexcept {
    const __u32 zero = 0;
    return bpf_map_update_elem(settings_.get(), &zero, &settings, BPF_ANY) == 0;
}

bool SteerLoader::bind_socket(std::uint32_t queue, int socket) noexcept {
    return bpf_map_update_elem(sockets_.get(), &queue, &socket, BPF_ANY) == 0;
}

bool SteerLoader::put(std::uint32_t ssrc, bool blocked) noexcept {
    // Tokens that were never refilled are full at the first packet.
    const voice_steer_session session{
        .seen_ns = monotonic_ns(), .refilled_ns = 0, .tokens = 0, .blocked = blocked ? 1U : 0U};
    return bpf_map_update_elem(sessions_.get(), &ssrc, &session, BPF_ANY) == 0;
}

bool SteerLoader::admit(std::uint32_t ssrc) noexcept { return put(ssrc, false); }
bool SteerLoader::block(std::uint32_t ssrc) noexcept { return put(ssrc, true); }

bool SteerLoader::remove(std::uint32_t ssrc) noexcept {
    return bpf_map_delete_elem(sessions_.get(), &ssrc) == 0 || errno == ENOENT;
}

std::optional<voice_steer_session> SteerLoader::find(std::uint32_t ssrc) const noexcept {
    voice_steer_session session{};
    return bpf_map_lookup_elem(sessions_.get(), &ssrc, &session) == 0 ? std::optional(session) : std::nullopt;
}

// In batches: an entry at a time, 65,536 sessions would be 130,000 system calls.
void SteerLoader::each(const std::function<void(std::uint32_t, const voice_steer_session&)>& callback) const {
    std::vector<std::uint32_t> ssrcs(kBatch);
    std::vector<voice_steer_session> sessions(kBatch);
    __u32 position = 0;
    for (bool first = true, more = true; more; first = false) {
        __u32 count = kBatch;
        const int failed = bpf_map_lookup_batch(sessions_.get(), first ? nullptr : &position, &position, ssrcs.data(),
                                                sessions.data(), &count, nullptr);
        if (failed != 0 && errno != ENOENT) {
            return;
        }
        more = failed == 0;
        for (__u32 i = 0; i < count; ++i) {
            callback(ssrcs[i], sessions[i]);
        }
    }
}

Counts SteerLoader::counts() const {
    Counts counts{};
    std::vector<std::uint64_t> per_cpu(static_cast<std::size_t>(libbpf_num_possible_cpus()));
    for (__u32 what = 0; what < counts.size(); ++what) {
        if (bpf_map_lookup_elem(counts_.get(), &what, per_cpu.data()) == 0) {
            counts[what] = std::accumulate(per_cpu.begin(), per_cpu.end(), std::uint64_t{0});
        }
    }
    return counts;
}

int SteerLoader::on_request(void* self, void* data, std::size_t bytes) {
    const auto* loader = static_cast<SteerLoader*>(self);
    if (bytes != sizeof(voice_steer_admission)) {
        return 0;
    }
    // A negative value ends the round; this request counts as taken.
    return (*loader->callback_)(*static_cast<const voice_steer_admission*>(data)) ? 0 : -ENOSPC;
}

void SteerLoader::poll_requests(std::chrono::milliseconds limit,
                                const std::function<bool(const voice_steer_admission&)>& callback) {
    callback_ = &callback;
    // What an earlier round left wakes nobody: it is taken first.
    if (ring_buffer__consume(requests_.get()) == 0) {
        ring_buffer__poll(requests_.get(), static_cast<int>(limit.count()));
    }
    callback_ = nullptr;
}

}  // namespace voice::xdp
