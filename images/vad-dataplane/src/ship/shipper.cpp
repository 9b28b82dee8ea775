#include "ship/shipper.hpp"

#include <netinet/ip.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "support/quiet_thread.hpp"

namespace voice::ship {
namespace {

using Clock = Pinning::Clock;
constexpr std::chrono::seconds kFlush{1};

static_assert(sizeof(voice_audio_chunk) == 16 + VOICE_CHUNK_PAYLOAD_BYTES, "a chunk is sent as it lies in memory");

}  // namespace

bool Shipper::open(std::string& error) {
    socket_ = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // A datagram that the path's MTU does not take is refused and counted; in fragments it would be lost more often.
    const int whole = IP_PMTUDISC_DO;
    if (!socket_.is_open() || setsockopt(socket_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof whole) != 0) {
        error = std::string("the socket for chunks: ") + std::strerror(errno);
        return false;
    }
    // The kernel gives net.core.wmem_max at most; less shows as stalls.
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &settings_.send_buffer_bytes, sizeof settings_.send_buffer_bytes);
    return true;
}

void Shipper::start() {
    thread_ = start_quiet_thread([this] { run(); });
}

void Shipper::stop() {
    stopping_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) {
        thread_.join();
    }
}

void Shipper::run() {
    while (!stopping_.load(std::memory_order_relaxed)) {
        if (!pass()) {
            std::this_thread::sleep_for(settings_.idle);
        }
    }
    const auto end = Clock::now() + kFlush;
    while (pass() && Clock::now() < end) {
    }
}

bool Shipper::pass() {
    refresh_hosts();
    bool moved = false;
    for (auto* source : sources_) {
        moved = ship(*source) || moved;
    }
    counters_.sessions.store(pinning_.sessions(), std::memory_order_relaxed);
    counters_.moves.store(pinning_.moves(), std::memory_order_relaxed);
    return moved;
}

void Shipper::refresh_hosts() {
    auto hosts = source_of_hosts_.hosts();
    if (hosts != hosts_) {
        hosts_ = hosts;
        pinning_.update(std::move(hosts), Clock::now());
    }
}

bool Shipper::ship(ChunkSource& source) {
    const auto window = judge(source);
    if (window == 0) {
        return false;
    }
    const auto done = send(window);
    count(done);
    source.release(done);
    return done != 0;
}

// Decides on the oldest chunks of a ring; returns how many.
std::size_t Shipper::judge(ChunkSource& source) {
    const auto now = Clock::now();
    const auto occupancy = source.occupancy();
    message_count_ = 0;
    std::size_t window = 0;
    for (; window < kBatch; ++window) {
        const auto* chunk = source.peek(window);
        if (chunk == nullptr) {
            break;
        }
        // Those that this window has decided on are as good as gone.
        const auto left = occupancy > window ? occupancy - window : 0;
        verdicts_[window] = verdict(*chunk, 100 * left / source.slots(), now);
        if (verdicts_[window] == Verdict::kSend) {
            places_[message_count_ - 1] = window;
        }
    }
    return window;
}

Shipper::Verdict Shipper::verdict(const voice_audio_chunk& chunk, std::size_t percent_full, Clock::time_point now) {
    const unsigned flags = chunk.flags;
    // The engine waits for the end of speech: it goes with the others, not with silence.
    const bool is_silence = (flags & (VOICE_CHUNK_SILENCE | VOICE_CHUNK_CONCEALED)) != 0 &&
                            (flags & (VOICE_CHUNK_END_OF_SPEECH | VOICE_CHUNK_START_OF_SPEECH)) == 0;
    if (percent_full >= settings_.shed_any_percent) {
        return is_silence ? Verdict::kShedSilence : Verdict::kShedOldest;
    }
    if (is_silence && percent_full >= settings_.shed_silence_percent) {
        return Verdict::kShedSilence;
    }
    const auto* host = pinning_.host_of(chunk.session, (flags & VOICE_CHUNK_START_OF_SPEECH) != 0, now);
    if (host == nullptr) {
        return Verdict::kNoHost;
    }
    add_message(chunk, host->address);
    return Verdict::kSend;
}

void Shipper::add_message(const voice_audio_chunk& chunk, const sockaddr_in& to) {
    const auto at = message_count_++;
    addresses_[at] = to;
    slices_[at] = {.iov_base = const_cast<voice_audio_chunk*>(&chunk), .iov_len = sizeof chunk};
    messages_[at] = {};
    messages_[at].msg_hdr.msg_name = &addresses_[at];
    messages_[at].msg_hdr.msg_namelen = sizeof addresses_[at];
    messages_[at].msg_hdr.msg_iov = &slices_[at];
    messages_[at].msg_hdr.msg_iovlen = 1;
}

// Sends the messages; returns how many of the window's chunks are done with.
std::size_t Shipper::send(std::size_t window) {
    std::size_t at = 0;
    while (at < message_count_) {
        const int sent = sendmmsg(socket_.get(), &messages_[at], static_cast<unsigned>(message_count_ - at), 0);
        if (sent > 0) {
            at += static_cast<std::size_t>(sent);
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            counters_.stalls.fetch_add(1, std::memory_order_relaxed);
            return places_[at];
        } else if (errno != EINTR) {
            verdicts_[places_[at++]] = Verdict::kFailed;
        }
    }
    return window;
}

void Shipper::count(std::size_t released) {
    std::array<std::uint64_t, 5> totals{};
    for (const auto each : std::span(verdicts_).first(released)) {
        ++totals[static_cast<std::size_t>(each)];
    }
    const auto add = [&](std::atomic<std::uint64_t>& counter, Verdict of) {
        counter.fetch_add(totals[static_cast<std::size_t>(of)], std::memory_order_relaxed);
    };
    add(counters_.sent, Verdict::kSend);
    add(counters_.shed_silence, Verdict::kShedSilence);
    add(counters_.shed_oldest, Verdict::kShedOldest);
    add(counters_.no_host, Verdict::kNoHost);
    add(counters_.failed, Verdict::kFailed);
}

}  // namespace voice::ship
