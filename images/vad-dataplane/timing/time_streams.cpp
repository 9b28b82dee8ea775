// Cost of a packet in the data plane's own code, from memory: the upper bound of streams per core.
//   time_streams ROUNDS MODULE.so AUDIO STREAMS[/BATCH][/srtp|/gcm]...
//
// AUDIO is 16 kHz PCM16 in network order. Packets pass through a poller (headers, session, jitter buffer, VAD, log-mel,
// ring) and its chunks through the shipper to a local UDP port, in turn on one thread, timed separately. Time is the
// thread's CPU time, so other work on the machine counts only through its effect on the caches. Packets are written,
// and those of SRTP encrypted, on another CPU.
#include <arpa/inet.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>

#include "measure.hpp"
#include "memory_queue.hpp"
#include "pipeline/poller.hpp"
#include "pipeline/session_slots.hpp"
#include "pipeline/state_file.hpp"
#include "ship/shipper.hpp"
#include "support/huge_pages.hpp"

namespace {

using namespace voice;

constexpr std::uint32_t kTicksPerS = 50;
constexpr std::uint32_t kWarmUpTicks = 100;
constexpr std::uint32_t kRoundPackets = 200'000;
constexpr srtp::Key kKey{1, 2, 3};

// Kinds of callers' packets.
enum class Kind : std::uint8_t { kRtp, kAesCm, kAesGcm };
constexpr std::array<const char*, 3> kKindNames{"", ", SRTP", ", SRTP with AES-GCM"};
srtp::Suite suite_of(Kind kind) { return kind == Kind::kAesGcm ? srtp::Suite::kAeadAes128Gcm : srtp::Suite::kAesCm128HmacSha1_80; }

constexpr std::array<const char*, pipeline::kStages> kStageNames{"SRTP", "decoding", "jitter buffer", "VAD (wasm)",
                                                                  "log-mel and ring"};

double thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

std::vector<bench::Frame> read_audio(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
    std::vector<bench::Frame> frames(bytes.size() / sizeof(bench::Frame));
    if (frames.empty()) {
        throw std::runtime_error(std::string(path) + " holds no audio");
    }
    std::memcpy(frames.data(), bytes.data(), frames.size() * sizeof(bench::Frame));
    return frames;
}

// One local ASR host that reads nothing: its socket's buffer soon fills, and the kernel drops the rest.
class OneHost final : public ship::HostSource {
public:
    OneHost() {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
            getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
            throw std::runtime_error("cannot open a UDP port");
        }
        ship::Host host;
        host.id = "asr";
        host.address = address;
        host.free_slots = 1'000'000;
        hosts_ = std::make_shared<const std::vector<ship::Host>>(std::vector{host});
    }
    [[nodiscard]] ship::Hosts take() noexcept override { return std::exchange(hosts_, nullptr); }

private:
    Descriptor socket_{socket(AF_INET, SOCK_DGRAM, 0)};
    ship::Hosts hosts_;
};

class NobodyUnknown final : public pipeline::Senders {
    control::DropReason on_unknown(std::uint32_t, std::uint64_t, std::int64_t) noexcept override {
        return control::DropReason::kUnknownSession;
    }
};

struct Spent {
    double poller_ns = 0;
    double shipper_ns = 0;
    std::uint64_t cycles = 0;  // of the poller
};

// The data plane of one queue, without its threads.
class Plane : public OnHugePages {
public:
    Plane(std::uint32_t streams, std::size_t batch, Kind kind, const std::vector<bench::Frame>& audio, const char* module,
          bench::OtherCpu& other_cpu)
        : streams_(streams), batch_(batch), kind_(kind), other_cpu_(other_cpu),
          queue_(streams, batch, audio, kind == Kind::kRtp ? nullptr : &kKey, suite_of(kind)), slots_(streams, VOICE_CHUNK_LOG_MEL),
          state_("/dev/shm/voice-bench-" + std::to_string(getpid()) + "-" + std::to_string(streams) + "-" +
                     std::to_string(batch) + "-" + std::to_string(static_cast<int>(kind)), streams),
          poller_(0U, queue_,
                  pipeline::PollerParts{.index = 0,
                                        .vad = std::make_unique<vad::Instance>(vad::Module::load(module)),
                                        .table = state_.table(),
                                        .keep = std::chrono::seconds(60),
                                        .packets_per_s = 1'000'000,
                                        .ring_size = 64},
                  slots_.slots(), unknown_),
          chunks_(poller_.chunks(), poller_.host_notes()), shipper_({}, {&chunks_}, host_) {
        std::string error;
        if (!shipper_.open(error)) {
            throw std::runtime_error("the shipper: " + error);
        }
        slots_.tell(poller_);
        admission::SessionRecord record;
        if (kind != Kind::kRtp) {
            record.srtp_key = kKey;
            record.srtp_suite = suite_of(kind);
        }
        for (std::uint32_t stream = 0; stream < streams; ++stream) {
            while (!slots_.open(bench::MemoryQueue::ssrc_of(stream), record)) {
                poller_.pass();  // takes waiting commands
            }
        }
        run(kWarmUpTicks * streams);
        const pipeline::PollerCounters& counters = poller_.counters();
        if (counters.audio.frames < std::uint64_t{kWarmUpTicks - 10} * streams || shipper_.counters().sent == 0) {
            throw std::runtime_error("the packets do not come through");
        }
    }

    Spent run(std::uint32_t packets) {
        Spent spent;
        for (std::uint32_t done = 0; done < packets; done += bench::MemoryQueue::kPackets) {
            other_cpu_.run([this] { queue_.fill(); });
            const double start = thread_ns();
            const std::uint64_t first = cycles();
            while (poller_.pass() != 0) {
            }
            spent.cycles += cycles() - first;
            const double polled = thread_ns();
            while (shipper_.pass()) {
            }
            spent.poller_ns += polled - start;
            spent.shipper_ns += thread_ns() - polled;
        }
        return spent;
    }

    // Measures a round and adds it to the results, in the order of names().
    void measure(std::vector<bench::Result>& into, std::size_t first) {
        const pipeline::PollerCounters& counters = poller_.counters();
        const std::uint64_t before = counters.packets;
        std::array<std::uint64_t, pipeline::kStages> stages{};
        for (std::size_t i = 0; i < stages.size(); ++i) {
            stages[i] = counters.stages[i].cycles;
        }
        const Spent spent = run(kRoundPackets);
        const auto packets = static_cast<double>(counters.packets - before);
        const double ns_per_cycle = spent.poller_ns / static_cast<double>(spent.cycles) / packets;
        double rest = spent.poller_ns / packets;
        const double streams = 1e9 / kTicksPerS / rest;
        for (std::size_t i = 0; i < stages.size(); ++i) {
            const double ns = static_cast<double>(counters.stages[i].cycles - stages[i]) * ns_per_cycle;
            into[first + 1 + i].rounds.push_back(ns);
            rest -= ns;
        }
        into[first].rounds.push_back(rest);
        into[first + 6].rounds.push_back(spent.shipper_ns / packets);
        into[first + 7].rounds.push_back(streams);
        into[first + 8].rounds.push_back(1e9 / kTicksPerS / ((spent.poller_ns + spent.shipper_ns) / packets));
        const session::Counters& audio = counters.audio;
        into[first + 9].rounds.push_back(static_cast<double>(audio.shipped_frames) / static_cast<double>(audio.frames));
    }

    [[nodiscard]] std::vector<bench::Result> names() const {
        const std::string group = std::to_string(streams_) + " streams, a packet from memory, " +
                                  std::to_string(batch_) + " at a time" + kKindNames[static_cast<std::size_t>(kind_)];
        return {{group, "headers, session, state", "ns", {}}, {group, kStageNames[0], "ns", {}},
                {group, kStageNames[1], "ns", {}},            {group, kStageNames[2], "ns", {}},
                {group, kStageNames[3], "ns", {}},            {group, kStageNames[4], "ns", {}},
                {group, "shipping (UDP)", "ns", {}},          {group, "poller alone", "streams a core", {}},
                {group, "with shipping", "streams a core", {}}, {group, "frames shipped", "share", {}}};
    }

private:
    std::uint32_t streams_;
    std::size_t batch_;
    Kind kind_;
    bench::OtherCpu& other_cpu_;
    bench::MemoryQueue queue_;
    pipeline::SessionSlots slots_;
    NobodyUnknown unknown_;
    OneHost host_;
    pipeline::StateFile state_;
    pipeline::QueuePoller<bench::MemoryQueue> poller_;
    pipeline::PollerChunks chunks_;
    ship::Shipper shipper_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) {
        std::fputs("time_streams ROUNDS MODULE.so AUDIO STREAMS[/BATCH][/srtp|/gcm]...\n", stderr);
        return 2;
    }
    bench::OtherCpu other_cpu;  // before this thread is pinned to a CPU, which others would inherit
    bench::pin(0);
    const auto audio = read_audio(argv[3]);
    std::vector<std::unique_ptr<Plane>> planes;
    std::vector<bench::Result> results;
    for (int i = 4; i < argc; ++i) {
        const char* batch = std::strchr(argv[i], '/');
        planes.push_back(std::make_unique<Plane>(
            static_cast<std::uint32_t>(std::atoi(argv[i])),
            batch == nullptr || std::atoi(batch + 1) == 0 ? bench::MemoryQueue::kBatch
                                                          : static_cast<std::size_t>(std::atoi(batch + 1)),
            std::strstr(argv[i], "/gcm") != nullptr ? Kind::kAesGcm : std::strstr(argv[i], "/srtp") != nullptr ? Kind::kAesCm : Kind::kRtp, audio, argv[2],
            other_cpu));
        std::ranges::move(planes.back()->names(), std::back_inserter(results));
    }
    const std::size_t each = results.size() / planes.size();
    for (int round = 0; round < std::atoi(argv[1]); ++round) {
        for (std::size_t i = 0; i < planes.size(); ++i) {
            planes[i]->measure(results, i * each);
        }
    }
    bench::print(results);
    return 0;
}
