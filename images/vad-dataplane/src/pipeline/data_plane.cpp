#include "pipeline/data_plane.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>

#include "receive/burst.hpp"
#include "support/quiet_thread.hpp"

namespace voice::pipeline {
namespace {

constexpr auto kNap = std::chrono::milliseconds(1);  // a call sends every 20 ms
constexpr int kEmptyPassesBeforeNap = 64;
constexpr std::chrono::seconds kWriteBehindEvery{1};

ship::HostRegistry::Settings registry_settings(const config::Config& config) {
    ship::HostRegistry::Settings settings;
    settings.chunk_port = config.chunk_port;
    return settings;
}

ship::Shipper::Settings shipper_settings(const config::Config& config) {
    ship::Shipper::Settings settings;
    settings.zone = config.zone;
    settings.resend_window = config.resend_window;
    settings.resend_bytes = std::size_t{config.resend_mib} << 20;
    return settings;
}

admission::Settings admission_settings(const config::Config& config) {
    admission::Settings settings;
    settings.silent_after = config.silent_after;
    return settings;
}

// Pollers take this process's cores from the last one down: the first is for the kernel and other threads.
void pin_to(int index) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    int skip = index % CPU_COUNT(&allowed);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
        if (CPU_ISSET(cpu, &allowed) && skip-- == 0) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
    }
}

std::int64_t now_ns() noexcept { return std::chrono::steady_clock::now().time_since_epoch().count(); }

constexpr std::array<const char*, kStages> kStageNames{"unprotect", "decode", "reorder", "vad", "features"};

}  // namespace

DataPlane::DataPlane(const config::Config& config)
    : config_(config), vad_module_(config.vad_module),
      slots_(config.max_sessions, config.log_mel ? VOICE_CHUNK_LOG_MEL : VOICE_CHUNK_PCM16),
      source_(open_source(config, slots_)),
      naps_(source_->may_sleep() || config.rx_queues >= std::thread::hardware_concurrency()), registry_(registry_settings(config), config.store) {
    const auto module = vad::Module::load(vad_module_);
    for (unsigned i = 0; i < config.rx_queues; ++i) {
        auto instance = std::make_unique<vad::Instance>(module);
        if (instance->streams() < config.max_sessions) {
            throw std::runtime_error("VOICE_MAX_SESSIONS " + std::to_string(config.max_sessions) + " is more than the " +
                                     std::to_string(instance->streams()) + " streams of " + vad_module_);
        }
        const auto state_file = config.state_file + "." + std::to_string(i);
        tables_.push_back(std::make_unique<StateFile>(state_file, config.max_sessions));
        pollers_.push_back(source_->make_poller({.index = static_cast<int>(i),
                                                 .vad = std::move(instance),
                                                 .table = tables_.back()->table(),
                                                 .keep = config.silent_after,
                                                 .packets_per_s = config.packets_per_s,
                                                 .ring_size = std::max(config.rx_ring_size, receive::kAfXdpDescriptors)}));
        slots_.tell(*pollers_.back());
        rings_.push_back(std::make_unique<PollerChunks>(pollers_.back()->chunks(), pollers_.back()->host_notes()));
    }
    for (const auto& poller : pollers_) {
        poller->meet(pollers_);
    }
    std::vector<ship::ChunkSource*> rings;
    for (const auto& ring : rings_) {
        rings.push_back(ring.get());
    }
    shipper_ = std::make_unique<ship::Shipper>(shipper_settings(config), std::move(rings), registry_);
    std::string error;
    if (!shipper_->open(error)) {
        throw std::runtime_error("the shipper: " + error);
    }
    std::vector<const state::SessionTable*> tables;
    for (const auto& file : tables_) {
        tables.push_back(&file->table());
    }
    write_behind_ = std::make_unique<state::WriteBehind>(kWriteBehindEvery, config.store, tables);
    admission_ = std::make_unique<admission::Admission>(admission_settings(config), config.store, source_->requests(),
                                                        source_->gate(), slots_);
    presence_ = std::make_unique<admission::Presence>(
        admission::Presence::Identity{config.host, config.host_address}, config.store, [this] { return presence(); });
}

DataPlane::~DataPlane() { stop(); }

void DataPlane::start() {
    registry_.start();
    shipper_->start();
    for (std::size_t i = 0; i < pollers_.size(); ++i) {
        threads_.push_back(start_quiet_thread("poller", [this, i] { poll(*pollers_[i], static_cast<int>(i)); }));
    }
    write_behind_->start();
    admission_->start();
    presence_->start();
}

void DataPlane::stop() {
    presence_->stop();
    admission_->stop();
    stopping_.store(true, std::memory_order_relaxed);
    for (std::thread& thread : threads_) {
        thread.join();
    }
    threads_.clear();
    write_behind_->stop();
    shipper_->stop();
    registry_.stop();
}

void DataPlane::poll(Poller& poller, int core) {
    pin_to(core);
    int empty = 0;
    while (!stopping_.load(std::memory_order_relaxed)) {
        empty = poller.pass() == 0 ? empty + 1 : 0;
        if (naps_ && empty > kEmptyPassesBeforeNap) {
            std::this_thread::sleep_for(kNap);
        }
    }
}

std::int64_t DataPlane::oldest_pass_ns() const noexcept {
    return (*std::ranges::min_element(pollers_, {}, [](const auto& each) { return each->passed_ns(); }))->passed_ns();
}

bool DataPlane::can_flow() {
    const std::int64_t passed = oldest_pass_ns();
    return passed != 0 && !draining_ && now_ns() - passed < std::chrono::nanoseconds(kStalledAfter).count();
}

void DataPlane::set_healthy(bool healthy) { source_->set_healthy(healthy); }

admission::Presence::Report DataPlane::presence() {
    const std::size_t sessions = slots_.sessions();
    return {.can_flow = can_flow(), .draining = draining_,
            .free_slots = config_.max_sessions - std::min<std::size_t>(sessions, config_.max_sessions)};
}

void DataPlane::begin_drain() {
    draining_ = true;
    admission_->drain();
}

bool DataPlane::is_drained() {
    for (const auto& ring : rings_) {
        if (ring->occupancy() > 0) {
            return false;
        }
    }
    return slots_.sessions() == 0;
}

std::string DataPlane::swap_vad(const std::string& module) {
    if (const auto folder = std::filesystem::path(config_.vad_module).parent_path();
        std::filesystem::path(module).parent_path() != folder) {
        return module + " is not in " + folder.string() + ", where VOICE_VAD_MODULE is: put modules there";
    }
    try {
        const auto loaded = vad::Module::load(module);
        std::vector<std::unique_ptr<vad::Instance>> instances;
        for (std::size_t i = 0; i < pollers_.size(); ++i) {
            instances.push_back(std::make_unique<vad::Instance>(loaded));
            if (instances.back()->streams() < config_.max_sessions) {
                return module + " has " + std::to_string(instances.back()->streams()) + " streams, fewer than the " +
                       std::to_string(config_.max_sessions) + " of VOICE_MAX_SESSIONS";
            }
        }
        for (std::size_t i = 0; i < pollers_.size(); ++i) {
            pollers_[i]->vad().offer(std::move(instances[i]));
        }
    } catch (const vad::LoadError& error) {
        return error.what();
    }
    vad_module_ = module;
    return "";
}

control::Status DataPlane::status() {
    static constexpr std::array<const char*, 4> kPaths{"af_xdp", "vfio", "af_packet", "socket"};
    const auto uptime = std::chrono::steady_clock::now() - started_;
    return {.state = draining_     ? control::State::kDraining
                     : can_flow()  ? control::State::kReady
                     : oldest_pass_ns() == 0 ? control::State::kStarting
                                          : control::State::kStalled,
            .host = config_.host,
            .data_path = kPaths[static_cast<std::size_t>(config_.data_path)],
            .interface = config_.interface,
            .vad_module = vad_module_,
            .sessions = slots_.sessions(),
            .uptime = std::chrono::duration_cast<std::chrono::seconds>(uptime)};
}

control::Telemetry DataPlane::telemetry() {
    control::Telemetry telemetry;
    telemetry.sessions = slots_.sessions();
    telemetry.max_sessions = config_.max_sessions;
    for (const char* name : kStageNames) {
        telemetry.stages.push_back({.name = name});
    }
    for (const auto& poller : pollers_) {
        poller->vad().collect();
        telemetry.queues.push_back(load_of(*poller));
        add(telemetry, *poller);
    }
    source_->add_drops(telemetry.drops);
    const ship::ShipCounters& ship = shipper_->counters();
    control::drops_of(telemetry.drops, control::DropReason::kNoHost) += ship.no_host;
    control::drops_of(telemetry.drops, control::DropReason::kShed) += ship.shed_silence + ship.shed_oldest;
    const admission::Counters& admission = admission_->counters();
    const auto sum = [this](auto&& of) {
        std::uint64_t total = 0;
        for (const auto& poller : pollers_) {
            total += std::uint64_t{of(*poller)};
        }
        return total;
    };
    telemetry.asr_hosts = registry_.counters().hosts;
    telemetry.vad_stopped = sum([](Poller& each) { return each.vad().counters().stopped.load(std::memory_order_relaxed); });
    telemetry.groups = {
        {"packets", {{"handed_over", sum([](Poller& each) { return std::uint64_t{each.counters().handed_over}; })},
                     {"followed", sum([](Poller& each) { return std::uint64_t{each.counters().followed}; })},
                     {"duplicates", sum([](Poller& each) { return std::uint64_t{each.counters().duplicates}; })},
                     {"restarts", sum([](Poller& each) { return std::uint64_t{each.counters().restarts}; })}}},
        {"vad", {{"fallback_frames", sum([](Poller& each) { return std::uint64_t{each.vad().counters().fallback_frames}; })},
                 {"traps", sum([](Poller& each) { return std::uint64_t{each.vad().counters().traps}; })},
                 {"runaways", sum([](Poller& each) { return std::uint64_t{each.vad().counters().runaways}; })},
                 {"swaps", sum([](Poller& each) { return std::uint64_t{each.vad().counters().swaps}; })}}},
        {"ship", {{"sent", ship.sent}, {"resent", ship.resent}, {"window_short", ship.window_short},
                  {"failed", ship.failed}, {"stalls", ship.stalls}, {"moves", ship.moves}}},
        {"admission", {{"admitted", admission.admitted}, {"refused", admission.refused},
                       {"malformed", admission.malformed},
                       {"unanswered", admission.unanswered}, {"silent", admission.silent},
                       {"expired", admission.expired}, {"closed", admission.closed},
                       {"ended", admission.ended}, {"no_room", admission.no_room}}},
        {"state", {{"written", write_behind_->counters().written}, {"gone", write_behind_->counters().gone},
                   {"unanswered", write_behind_->counters().unanswered}}},
        {"registry", {{"refreshes", registry_.counters().refreshes}, {"malformed", registry_.counters().malformed},
                      {"unanswered", registry_.counters().unanswered}}},
        {"presence", {{"unanswered", presence_->unanswered()}}},
    };
    if (auto allowances = source_->allowances(); !allowances.empty()) {
        telemetry.groups.emplace_back("allowances", std::move(allowances));
    }
    return telemetry;
}

control::QueueLoad DataPlane::load_of(Poller& poller) {
    const std::uint32_t size = poller.ring_size();
    const std::uint32_t waiting = poller.counters().backlog.exchange(0, std::memory_order_relaxed);
    return {.rx_used = size == 0 ? 0 : std::min(waiting, size),
            .rx_size = size,
            .chunks_used = poller.chunks().occupancy(),
            .chunks_size = ChunkRing::kSlots};
}

void DataPlane::add(control::Telemetry& telemetry, Poller& poller) {
    const PollerCounters& from = poller.counters();
    for (std::size_t i = 0; i < telemetry.drops.size(); ++i) {
        telemetry.drops[i] += from.drops[i];
    }
    control::drops_of(telemetry.drops, control::DropReason::kRingFull) += from.audio.ring_full;
    telemetry.vad_frames += from.audio.frames;
    telemetry.vad_silent_frames += from.audio.silent_frames;
    for (std::size_t i = 0; i < kStages; ++i) {
        telemetry.stages[i].cycles += from.stages[i].cycles;
        telemetry.stages[i].items += from.stages[i].items;
    }
}

std::vector<control::Session> DataPlane::sessions(std::size_t first, std::size_t limit) {
    std::vector<control::Session> found;
    std::size_t place = 0;
    for (const Slot& slot : slots_.slots()) {
        if (found.size() == limit) {
            break;
        }
        if (slot.known_to.load(std::memory_order_acquire) == 0 || place++ < first) {
            continue;
        }
        found.push_back({.ssrc = slot.ssrc,
                         .encrypted = slot.encrypted,
                         .packets = slot.packets,
                         .concealed = slot.concealed,
                         .wrong_payload = slot.wrong_payload,
                         .chunks = slot.chunks.load(std::memory_order_relaxed),
                         .speaking = slot.speaking});
    }
    return found;
}

}  // namespace voice::pipeline
