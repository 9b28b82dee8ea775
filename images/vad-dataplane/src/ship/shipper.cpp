#include "ship/shipper.hpp"

#include <netinet/ip.h>
#include <netinet/udp.h>

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

// Size at which sendmsg() splits a datagram: whole chunks.
struct Segmented {
    alignas(cmsghdr) std::array<std::uint8_t, CMSG_SPACE(sizeof(std::uint16_t))> bytes{};

    Segmented() noexcept {
        msghdr header{};
        header.msg_control = bytes.data();
        header.msg_controllen = bytes.size();
        cmsghdr* control = CMSG_FIRSTHDR(&header);
        control->cmsg_level = IPPROTO_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
        const std::uint16_t bytes_each = sizeof(voice_audio_chunk);
        std::memcpy(CMSG_DATA(control), &bytes_each, sizeof bytes_each);
    }
};
Segmented kSegmented;

}  // namespace

bool Shipper::open(std::string& error) {
    socket_ = Descriptor(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // A datagram above the path's MTU is refused and counted; fragments would be lost more often.
    const int whole = IP_PMTUDISC_DO;
    const int on = 1;
    if (!socket_.is_open() || setsockopt(socket_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &whole, sizeof whole) != 0 ||
        setsockopt(socket_.get(), IPPROTO_IP, IP_RECVERR, &on, sizeof on) != 0) {
        error = std::string("the socket for chunks: ") + std::strerror(errno);
        return false;
    }
    // The kernel grants net.core.wmem_max at most; less shows as stalls.
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
    if (hosts != nullptr) {
        cannot_segment_.clear();  // and detected again: hosts come, go and change their addresses
    }
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
        // Chunks that this window has decided on count as gone.
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
    // The engine waits for the end of speech, so it is not treated as silence.
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

// Called after a host was lost: searches the window for its chunks.
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

// Decides on the stored chunks from the cursor on; returns their number.
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
            break;  // it waits, and so do later ones
        }
        verdicts_[window] = Verdict::kSend;
        places_[message_count_ - 1] = window;
    }
    return window;
}

// False if no host has a slot for the session.
bool Shipper::add_message(const voice_audio_chunk& chunk, Clock::time_point now) {
    const auto* host = pinning_.host_of(chunk.session, (chunk.flags & VOICE_CHUNK_START_OF_SPEECH) != 0, now);
    if (host == nullptr) {
        return false;
    }
    const auto at = message_count_++;
    numbers_[at] = pinning_.number_of(*host);
    addresses_[at] = host->address;
    slices_[at] = {.iov_base = const_cast<voice_audio_chunk*>(&chunk), .iov_len = sizeof chunk};
    return true;
}

// Groups messages to the same host, as many as one UDP_SEGMENT call accepts. A session has one host, so its chunks stay
// in order.
void Shipper::group_by_host() {
    std::array<std::size_t, kBatch> group_of{};
    group_count_ = 0;
    for (std::size_t message = 0; message < message_count_; ++message) {
        const bool alone = std::ranges::find(cannot_segment_, numbers_[message]) != cannot_segment_.end();
        std::size_t group = group_count_;
        while (group > 0 && groups_[group - 1].host != numbers_[message]) {
            --group;  // the last one of this host
        }
        if (alone || group == 0 || groups_[group - 1].count == kSegments) {
            groups_[group_count_++] = {.host = numbers_[message], .first = 0, .count = 0};
            group = group_count_;
        }
        group_of[message] = group - 1;
        ++groups_[group - 1].count;
    }
    std::size_t first = 0;
    for (Group& group : std::span(groups_).first(group_count_)) {
        group.first = first;
        first += std::exchange(group.count, 0);
    }
    for (std::size_t message = 0; message < message_count_; ++message) {
        Group& group = groups_[group_of[message]];
        const std::size_t at = group.first + group.count++;
        grouped_[at] = message;
        grouped_slices_[at] = slices_[message];
    }
    for (std::size_t i = 0; i < group_count_; ++i) {
        const Group& group = groups_[i];
        msghdr& header = headers_[i].msg_hdr;
        header = {};
        header.msg_name = &addresses_[grouped_[group.first]];
        header.msg_namelen = sizeof(sockaddr_in);
        header.msg_iov = &grouped_slices_[group.first];
        header.msg_iovlen = group.count;
        header.msg_control = group.count > 1 ? kSegmented.bytes.data() : nullptr;
        header.msg_controllen = group.count > 1 ? kSegmented.bytes.size() : 0;
    }
}

// Sends the messages; returns how many of the window's chunks are finished. If the kernel's buffer is full, chunks
// after the first unsent one may have been sent, and are sent again: receivers recognize duplicates.
std::size_t Shipper::send(std::size_t window) {
    group_by_host();
    std::size_t at = 0;
    while (at < group_count_) {
        const int sent = sendmmsg(socket_.get(), &headers_[at], static_cast<unsigned>(group_count_ - at), 0);
        if (sent > 0) {
            at += static_cast<std::size_t>(sent);
            continue;
        }
        const bool is_full = errno == EAGAIN || errno == ENOBUFS;
        if (errno == EINTR || (!is_full && take_refusals())) {
            continue;
        }
        if (const std::size_t stopped = send_alone(at, is_full); stopped < groups_[at].count) {
            counters_.stalls.fetch_add(1, std::memory_order_relaxed);
            return first_place_from(at, stopped);
        }
        ++at;
    }
    return window;
}

// Sends the messages of a group individually if the kernel refuses them together; returns how many it sent before its
// buffer was full.
std::size_t Shipper::send_alone(std::size_t group, bool is_full) {
    const auto [host, first, count] = groups_[group];
    bool any_sent = false;
    for (std::size_t at = 0; at < count;) {
        msghdr header{};
        header.msg_name = &addresses_[grouped_[first + at]];
        header.msg_namelen = sizeof(sockaddr_in);
        header.msg_iov = &grouped_slices_[first + at];
        header.msg_iovlen = 1;
        if (sendmsg(socket_.get(), &header, 0) >= 0) {
            any_sent = true;
            ++at;
        } else if (errno == EAGAIN || errno == ENOBUFS) {
            return at;
        } else if (errno != EINTR && !take_refusals()) {
            verdicts_[places_[grouped_[first + at]]] = Verdict::kFailed;
            ++at;
        }
    }
    if (any_sent && !is_full && count > 1) {
        cannot_segment_.push_back(host);
    }
    return count;
}

// The first unsent chunk of the window, if sending stopped at a message of a group.
std::size_t Shipper::first_place_from(std::size_t group, std::size_t message) const {
    std::size_t place = places_[grouped_[groups_[group].first + message]];
    for (std::size_t later = group + 1; later < group_count_; ++later) {
        place = std::min(place, places_[grouped_[groups_[later].first]]);
    }
    return place;
}

// True if the error of a call concerns an earlier datagram: the call is repeated.
bool Shipper::take_refusals() {
    const auto now = Clock::now();
    const auto on_refusal = [&](const sockaddr_in& host) {
        if (pinning_.refused(host, now)) {
            begin_to_resend();
        }
    };
    return ship::take_refusals(socket_.get(), on_refusal) != 0;
}

// Stores what was sent from a ring, and what waits for repeated chunks.
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

// Records the new owners of the entries from the cursor on.
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
