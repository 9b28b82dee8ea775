// Cost of sending chunks to one ASR host: plain datagrams, UDP_SEGMENT as in the shipper, and AF_XDP's TX ring.
//   time_sending ROUNDS, as root
//
// Chunks leave through a veth in a separate namespace. No host has their destination address, so the other end drops
// them first of all. As with ENA, the kernel and not the interface splits segments, and AF_XDP is in copy mode (ENA has
// zero copy from driver 2.17 on). Time is the thread's CPU time, including the kernel's part.
#include <arpa/inet.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/mman.h>
#include <xdp/xsk.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "measure.hpp"
#include "support/descriptor.hpp"
#include "wire/audio_chunk.h"

namespace {

constexpr std::size_t kBatch = 64;     // chunks that the shipper takes from a ring at once
constexpr std::size_t kSegments = 16;  // chunks per datagram that the kernel splits
constexpr std::size_t kRoundBatches = 1000;
constexpr const char* kNear = "10.9.0.1";
constexpr const char* kHost = "10.9.0.2";
constexpr const char* kInterface = "sending0";
constexpr std::uint16_t kPort = 5005;
constexpr std::array<std::uint8_t, 6> kHostMac{2, 0, 0, 0, 0, 0x99};

using Chunk = voice_audio_chunk;
using Chunks = std::array<Chunk, kBatch>;

void check(bool holds, const char* what) {
    if (!holds) {
        throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
    }
}

void set_up_network() {
    check(unshare(CLONE_NEWNET) == 0, "a network namespace");
    const std::string link = kInterface;
    for (const std::string& command : {
             "ip link add " + link + " mtu 3498 type veth peer name sending1 mtu 3498",
             "ethtool -K " + link + " tx-udp-segmentation off >/dev/null",
             std::string("ip link set sending1 up"), "ip link set " + link + " up",
             "ip address add " + std::string(kNear) + "/24 dev " + link,
             "ip neighbour add " + std::string(kHost) + " lladdr 02:00:00:00:00:99 dev " + link}) {
        check(std::system(command.c_str()) == 0, command.c_str());
    }
}

double thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

class Way {
public:
    virtual ~Way() = default;
    virtual void send(const Chunks& chunks) = 0;
};

// Datagrams of `each` chunks, which the kernel splits into chunks.
class Datagrams final : public Way {
public:
    explicit Datagrams(std::size_t each) : each_(each) {
        sockaddr_in host{};
        host.sin_family = AF_INET;
        host.sin_port = htons(kPort);
        inet_pton(AF_INET, kHost, &host.sin_addr);
        const int room = 4 << 20;
        setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
        check(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&host), sizeof host) == 0, "connect");
        const int bytes = sizeof(Chunk);
        check(each == 1 || setsockopt(socket_.get(), IPPROTO_UDP, UDP_SEGMENT, &bytes, sizeof bytes) == 0, "UDP_SEGMENT");
    }

    void send(const Chunks& chunks) override {
        for (std::size_t i = 0; i < kBatch; ++i) {
            slices_[i] = {.iov_base = const_cast<Chunk*>(&chunks[i]), .iov_len = sizeof(Chunk)};
        }
        const std::size_t messages = kBatch / each_;
        for (std::size_t i = 0; i < messages; ++i) {
            messages_[i].msg_hdr = {};
            messages_[i].msg_hdr.msg_iov = &slices_[i * each_];
            messages_[i].msg_hdr.msg_iovlen = each_;
        }
        check(sendmmsg(socket_.get(), messages_.data(), static_cast<unsigned>(messages), 0) == static_cast<int>(messages),
              "sendmmsg");
    }

private:
    std::size_t each_;
    voice::Descriptor socket_{socket(AF_INET, SOCK_DGRAM, 0)};
    std::array<iovec, kBatch> slices_{};
    std::array<mmsghdr, kBatch> messages_{};
};

// Frames that the program writes completely, including headers.
class TxRing final : public Way {
public:
    TxRing() {
        memory_ = mmap(nullptr, kFrames * kFrame, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        check(memory_ != MAP_FAILED, "memory");
        xsk_umem_config frames{};
        frames.fill_size = XSK_RING_PROD__DEFAULT_NUM_DESCS;
        frames.comp_size = kFrames;
        frames.frame_size = kFrame;
        check(xsk_umem__create(&umem_, memory_, kFrames * kFrame, &fill_, &done_, &frames) == 0, "UMEM");
        xsk_socket_config config{};
        config.tx_size = kFrames;
        config.libxdp_flags = XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD;
        config.bind_flags = XDP_COPY;
        check(xsk_socket__create(&socket_, kInterface, 0, umem_, nullptr, &tx_, &config) == 0, "AF_XDP socket");
    }
    TxRing(const TxRing&) = delete;
    TxRing& operator=(const TxRing&) = delete;
    ~TxRing() override {
        xsk_socket__delete(socket_);
        xsk_umem__delete(umem_);
        munmap(memory_, kFrames * kFrame);
    }

    void send(const Chunks& chunks) override {
        std::uint32_t at = 0;
        while (xsk_ring_prod__reserve(&tx_, kBatch, &at) != kBatch) {
            reclaim();
        }
        for (std::size_t i = 0; i < kBatch; ++i) {
            const std::uint64_t frame = next_++ % kFrames * kFrame;
            std::uint8_t* into = static_cast<std::uint8_t*>(memory_) + frame;
            std::memcpy(into, headers_.data(), kHeaders);
            std::memcpy(into + kHeaders, &chunks[i], sizeof(Chunk));
            *xsk_ring_prod__tx_desc(&tx_, at + static_cast<std::uint32_t>(i)) = {
                .addr = frame, .len = kHeaders + sizeof(Chunk), .options = 0};
        }
        xsk_ring_prod__submit(&tx_, kBatch);
        outstanding_ += kBatch;
        while (outstanding_ != 0) {
            // The kernel takes 32 at most with each call.
            check(sendto(xsk_socket__fd(socket_), nullptr, 0, MSG_DONTWAIT, nullptr, 0) >= 0 || errno == EAGAIN ||
                      errno == EBUSY || errno == ENOBUFS, "sendto");
            reclaim();
        }
    }

private:
    static constexpr std::size_t kFrame = 4096, kFrames = 256;
    static constexpr std::size_t kIp = 14, kUdp = kIp + 20, kHeaders = kUdp + 8;

    void reclaim() {
        std::uint32_t at = 0;
        const auto count = xsk_ring_cons__peek(&done_, kFrames, &at);
        xsk_ring_cons__release(&done_, count);
        outstanding_ -= count;
    }

    static void put16(std::uint8_t* at, std::size_t value) {
        at[0] = static_cast<std::uint8_t>(value >> 8);
        at[1] = static_cast<std::uint8_t>(value);
    }

    using Headers = std::array<std::uint8_t, kHeaders>;

    // Without checksums: IPv4 makes UDP's optional, and the IP header's would be the same for each.
    static Headers headers() {
        Headers made{};
        std::memcpy(made.data(), kHostMac.data(), kHostMac.size());
        put16(&made[12], 0x0800);
        put16(&made[kIp], 0x4500);
        put16(&made[kIp + 2], kHeaders - kIp + sizeof(Chunk));
        put16(&made[kIp + 8], 0x4011);
        inet_pton(AF_INET, kNear, &made[kIp + 12]);
        inet_pton(AF_INET, kHost, &made[kIp + 16]);
        put16(&made[kUdp], kPort);
        put16(&made[kUdp + 2], kPort);
        put16(&made[kUdp + 4], 8 + sizeof(Chunk));
        return made;
    }

    Headers headers_ = headers();
    void* memory_ = nullptr;
    xsk_ring_prod fill_{}, tx_{};
    xsk_ring_cons done_{};
    xsk_umem* umem_ = nullptr;
    xsk_socket* socket_ = nullptr;
    std::uint64_t next_ = 0, outstanding_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fputs("time_sending ROUNDS\n", stderr);
        return 2;
    }
    set_up_network();
    bench::pin(0);
    const auto chunks = std::make_unique<Chunks>();
    const std::string group = "a chunk of " + std::to_string(sizeof(Chunk)) + " bytes to one host, through a veth";
    std::vector<bench::Result> results{{group, "voice (UDP_SEGMENT)", "ns", {}},
                                       {group, "a datagram each", "ns", {}},
                                       {group, "AF_XDP's TX ring, copy mode", "ns", {}}};
    std::array<std::unique_ptr<Way>, 3> ways{std::make_unique<Datagrams>(kSegments), std::make_unique<Datagrams>(1),
                                             std::make_unique<TxRing>()};
    for (int round = -1; round < std::atoi(argv[1]); ++round) {
        for (std::size_t way = 0; way < ways.size(); ++way) {
            const double start = thread_ns();
            for (std::size_t batch = 0; batch < kRoundBatches; ++batch) {
                ways[way]->send(*chunks);
            }
            if (round >= 0) {  // the first warms the caches
                results[way].rounds.push_back((thread_ns() - start) / (kRoundBatches * kBatch));
            }
        }
    }
    bench::print(results);
    return 0;
}
