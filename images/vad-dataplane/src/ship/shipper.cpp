#include "ship/shipper.hpp"

#include <netinet/ip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "ship/refusals.hpp"
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
    const int on = 1;
    if (!socket_.is_open() || setsockopt(socket_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof whole) != 0 ||
        setsockopt(socket_.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on) != 0) {
        error = std::string("the socket for chunks: ") + std::strerror(errno);
        return false;
    }
    // The kernel gives net.core.wmem_max at most; less shows as stalls.
    setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &settings_.send_buffer_bytes, sizeof settings_.send_buffer_bytes);
    return true;
}

void Shipper::start() {
    thread_ = start_quiet_thread("shipper", [this] { run(); });
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
    bool moved = resend();
    for (std::uint32_t source = 0; source < sources_.size(); ++source) {
        moved = ship(source) || moved;
    }
    counters_.sessions.store(pinning_.sessions(), std::memory_order_relaxed);
    counters_.moves.store(pinning_.moves(), std::memory_order_relaxed);
    return moved;
}

void Shipper::refresh_hosts() {
    Hosts hosts = source_of_hosts_.take();
    if (hosts != nullptr && pinning_.update(std::move(hosts), Clock::now())) {
        begin_to_resend();
    }
}

bool Shipper::ship(std::uint32_t source) {
    const auto window = judge(*sources_[source]);
    if (window == 0) {
        return false;
    }
    const auto done = send(window);
    remember(source, done);
    count(done);
    sources_[source]->release(done);
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
    if (resending_ && pinning_.is_moving(chunk.session)) {
        return Verdict::kOwed;
    }
    return add_message(chunk, now) ? Verdict::kSend : Verdict::kNoHost;
}

// A host was lost: what it had is looked for among all that is kept.
void Shipper::begin_to_resend() {
    resending_ = true;
    restart_ = true;
}

bool Shipper::resend() {
    bool moved = false;
    for (int round = 0; resending_ && round < kResendBatches; ++round) {
        cursor_ = std::exchange(restart_, false) ? window_.begin() : std::max(cursor_, window_.begin());
        const auto window = judge_again();
        const auto done = send(window);
        mark_again(done);
        cursor_ += done;
        moved = moved || done != 0;
        if (cursor_ == window_.end() && !restart_) {
            resending_ = false;
            pinning_.settle();
        } else if (done == 0 || done < window) {
            break;  // until there is a host, or room to send
        }
    }
    return moved;
}

// Decides on what is kept, from the cursor on; returns how many.
std::size_t Shipper::judge_again() {
    const auto now = Clock::now();
    message_count_ = 0;
    std::size_t window = 0;
    for (; window < kBatch && cursor_ + window < window_.end(); ++window) {
        const auto& entry = window_[cursor_ + window];
        const bool is_owed = entry.host == ResendWindow::kOwed;
        verdicts_[window] = Verdict::kKept;
        if (!is_owed && !pinning_.is_lost(entry.host)) {
            continue;
        }
        if (!window_.is_young(entry, now)) {
            verdicts_[window] = is_owed ? Verdict::kNoHost : Verdict::kKept;
            continue;
        }
        if (!add_message(entry.chunk, now)) {
            break;  // it waits, and so do those behind it
        }
        verdicts_[window] = Verdict::kSend;
        places_[message_count_ - 1] = window;
    }
    return window;
}

// False when no host has a slot for the session.
bool Shipper::add_message(const voice_audio_chunk& chunk, Clock::time_point now) {
    const auto* host = pinning_.host_of(chunk.session, (chunk.flags & VOICE_CHUNK_START_OF_SPEECH) != 0, now);
    if (host == nullptr) {
        return false;
    }
    const auto at = message_count_++;
    numbers_[at] = pinning_.number_of(*host);
    addresses_[at] = host->address;
    slices_[at] = {.iov_base = const_cast<voice_audio_chunk*>(&chunk), .iov_len = sizeof chunk};
    messages_[at] = {};
    messages_[at].msg_hdr.msg_name = &addresses_[at];
    messages_[at].msg_hdr.msg_namelen = sizeof addresses_[at];
    messages_[at].msg_hdr.msg_iov = &slices_[at];
    messages_[at].msg_hdr.msg_iovlen = 1;
    return true;
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
        } else if (errno != EINTR && !take_refusals()) {
            verdicts_[places_[at++]] = Verdict::kFailed;
        }
    }
    return window;
}

// True when the error that a call has just failed for is that of a datagram before: the call is repeated.
bool Shipper::take_refusals() {
    const auto now = Clock::now();
    const auto on_refusal = [&](const sockaddr_in& host) {
        if (pinning_.refused(host, now)) {
            begin_to_resend();
        }
    };
    return ship::take_refusals(socket_.get(), on_refusal) != 0;
}

// Keeps what was sent from a ring, and what has to wait for what is sent again.
void Shipper::remember(std::uint32_t source, std::size_t released) {
    const auto now = Clock::now();
    for (std::size_t place = 0, message = 0; place < released; ++place) {
        const bool has_message = message < message_count_ && places_[message] == place;
        const auto number = has_message ? numbers_[message] : ResendWindow::kOwed;
        const auto verdict = verdicts_[place];
        const auto& chunk = *sources_[source]->peek(place);
        if (has_message && (chunk.flags & VOICE_CHUNK_START_OF_SPEECH) != 0) {
            sources_[source]->on_host(chunk.session, addresses_[message]);
        }
        message += has_message ? 1 : 0;
        if (verdict != Verdict::kSend && verdict != Verdict::kOwed) {
            continue;
        }
        count_replaced(now);
        window_.append(chunk, number, source, now);
    }
}

void Shipper::count_replaced(Clock::time_point now) {
    const auto* oldest = window_.oldest();
    if (oldest != nullptr && oldest->host == ResendWindow::kOwed) {
        counters_.no_host.fetch_add(1, std::memory_order_relaxed);
    } else if (oldest != nullptr && window_.is_young(*oldest, now)) {
        counters_.window_short.fetch_add(1, std::memory_order_relaxed);
    }
}

// Says of the entries from the cursor on who has them now.
void Shipper::mark_again(std::size_t done) {
    for (std::size_t message = 0; message < message_count_ && places_[message] < done; ++message) {
        auto& entry = window_[cursor_ + places_[message]];
        const bool failed = verdicts_[places_[message]] == Verdict::kFailed;
        auto& counter = failed                               ? counters_.failed
                        : entry.host == ResendWindow::kOwed ? counters_.sent
                                                             : counters_.resent;
        counter.fetch_add(1, std::memory_order_relaxed);
        if (!failed) {
            sources_[entry.source]->on_host(entry.chunk.session, addresses_[message]);
        }
        entry.host = numbers_[message];
    }
    for (std::size_t place = 0; place < done; ++place) {
        if (verdicts_[place] == Verdict::kNoHost) {
            counters_.no_host.fetch_add(1, std::memory_order_relaxed);
            window_[cursor_ + place].host = ResendWindow::kGone;
        }
    }
}

void Shipper::count(std::size_t released) {
    std::array<std::uint64_t, kVerdicts> totals{};
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
