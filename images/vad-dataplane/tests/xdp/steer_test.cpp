// The XDP program on single packets, in the kernel, without a network (BPF_PROG_TEST_RUN). Needs CAP_BPF, CAP_NET_ADMIN,
// CAP_NET_RAW and CAP_PERFMON.
#include <gtest/gtest.h>
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <numeric>

#include "packets.hpp"
#include "steer.skel.h"
#include "wire/packet.h"
#include "xdp/steer.h"

namespace {

using namespace voice::test;

constexpr std::uint32_t kSlot = 7;

class Steer : public ::testing::Test {
protected:
    void SetUp() override {
        skeleton_ = steer_bpf__open_and_load();
        ASSERT_NE(skeleton_, nullptr) << std::strerror(errno) << ": loading an XDP program needs privileges";
        set({.rtp_port = kRtpPort, .packets_per_s = 100, .admissions_per_s = 10});
        bind_socket();
    }

    void TearDown() override {
        steer_bpf__destroy(skeleton_);
        if (socket_ >= 0) {
            close(socket_);
        }
    }

    void set(const voice_steer_settings& settings) {
        const __u32 zero = 0;
        ASSERT_EQ(bpf_map_update_elem(fd(skeleton_->maps.settings), &zero, &settings, BPF_ANY), 0);
    }

    void admit(std::uint32_t ssrc, bool blocked = false, std::uint32_t slot = kSlot) {
        const voice_steer_session session{.known_paid_ns = 0, .slot = slot, .blocked = blocked ? 1U : 0U};
        ASSERT_EQ(bpf_map_update_elem(fd(skeleton_->maps.sessions), &ssrc, &session, BPF_ANY), 0);
    }

    void set_sources(std::uint64_t last, std::uint64_t before = 0) {
        const voice_steer_senders senders{.sources = {last, before}, .others_paid_ns = 0, .unused = 0};
        ASSERT_EQ(bpf_map_update_elem(fd(skeleton_->maps.senders), &kSlot, &senders, BPF_ANY), 0);
    }

    // Sends the frame `times` times; returns the last verdict.
    int send(Bytes frame, unsigned times = 1) {
        bpf_test_run_opts options{};
        options.sz = sizeof options;
        options.data_in = frame.data();
        options.data_size_in = static_cast<__u32>(frame.size());
        options.repeat = static_cast<int>(times);
        const int failed = bpf_prog_test_run_opts(bpf_program__fd(skeleton_->progs.steer), &options);
        EXPECT_EQ(failed, 0) << std::strerror(-failed);
        return static_cast<int>(options.retval);
    }

    std::uint64_t counted(voice_steer_count what) {
        const __u32 key = what;
        std::vector<std::uint64_t> per_cpu(static_cast<std::size_t>(libbpf_num_possible_cpus()));
        EXPECT_EQ(bpf_map_lookup_elem(fd(skeleton_->maps.counts), &key, per_cpu.data()), 0);
        return std::accumulate(per_cpu.begin(), per_cpu.end(), std::uint64_t{0});
    }

    std::vector<voice_steer_admission> asked() {
        std::vector<voice_steer_admission> requests;
        ring_buffer* ring = ring_buffer__new(
            fd(skeleton_->maps.admissions),
            [](void* context, void* data, std::size_t) {
                static_cast<decltype(requests)*>(context)->push_back(*static_cast<voice_steer_admission*>(data));
                return 0;
            },
            &requests, nullptr);
        ring_buffer__consume(ring);
        ring_buffer__free(ring);
        return requests;
    }

    static int fd(const bpf_map* map) { return bpf_map__fd(map); }

    void unbind_socket() {
        const __u32 queue = 0;
        ASSERT_EQ(bpf_map_delete_elem(fd(skeleton_->maps.xsks_map), &queue), 0);
    }

    steer_bpf* skeleton_ = nullptr;

private:
    // A socket with a receive ring suffices for the verdict: a test run delivers nothing.
    void bind_socket() {
        socket_ = socket(AF_XDP, SOCK_RAW, 0);
        const int descriptors = 64;
        ASSERT_EQ(setsockopt(socket_, SOL_XDP, XDP_RX_RING, &descriptors, sizeof descriptors), 0);
        const __u32 queue = 0;
        ASSERT_EQ(bpf_map_update_elem(fd(skeleton_->maps.xsks_map), &queue, &socket_, BPF_ANY), 0)
            << std::strerror(errno);
    }

    int socket_ = -1;
};

const Bytes kAudio = ethernet(Ipv4{}(udp(Rtp{}.bytes())));

struct Case {
    std::string name;
    Bytes frame;
    int verdict;
    voice_steer_count counted;
};

class SteerCase : public Steer, public ::testing::WithParamInterface<Case> {};

TEST_P(SteerCase, HasItsVerdictAndItsCounter) {
    admit(kSsrc);
    EXPECT_EQ(send(GetParam().frame), GetParam().verdict);
    for (int what = 0; what < VOICE_STEER_COUNTS; ++what) {
        EXPECT_EQ(counted(static_cast<voice_steer_count>(what)), what == GetParam().counted ? 1U : 0U) << what;
    }
}

std::string case_name(const ::testing::TestParamInfo<Case>& test) { return test.param.name; }

Case to_kernel(std::string name, Bytes frame) { return {std::move(name), std::move(frame), XDP_PASS, VOICE_STEER_PASSED}; }
Case audio(std::string name, Bytes frame) {
    return {std::move(name), std::move(frame), XDP_REDIRECT, VOICE_STEER_REDIRECTED};
}
Case not_rtp(std::string name, Bytes frame) {
    return {std::move(name), std::move(frame), XDP_DROP, VOICE_STEER_NOT_RTP};
}

const Bytes kRtp = Rtp{}.bytes();
constexpr std::uint16_t kIpv6 = 0x86dd;
constexpr std::uint16_t kVlan = 0x8100;
constexpr std::uint16_t kProviderVlan = 0x88a8;
constexpr std::size_t kHeaders = 14 + 20 + 8;
const std::uint64_t kSource = voice_source_of_ipv4(htonl(0x0a000001), htons(40000));  // of Ipv4 and udp()

INSTANTIATE_TEST_SUITE_P(Audio, SteerCase, ::testing::Values(
    audio("IPv4", kAudio),
    audio("OneVlanTag", ethernet(Ipv4{}(udp(kRtp)), 0x0800, {kVlan})),
    audio("TwoVlanTags", ethernet(Ipv4{}(udp(kRtp)), 0x0800, {kProviderVlan, kVlan})),
    audio("IpOptions", ethernet(Ipv4{.header_words = 7, .option_bytes = 8}(udp(kRtp)))),
    audio("LongestIpHeader", ethernet(Ipv4{.header_words = 15, .option_bytes = 40}(udp(kRtp)))),
    audio("NoAudioAtAll", ethernet(Ipv4{}(udp(Rtp{.audio_bytes = 0}.bytes())))),
    audio("Contributors", ethernet(Ipv4{}(udp(Rtp{.contributors = 15, .audio_bytes = 60}.bytes())))),
    audio("LastTypeBeforeRtcp", ethernet(Ipv4{}(udp(Rtp{.payload_type = 191}.bytes())))),
    audio("FirstTypeAfterRtcp", ethernet(Ipv4{}(udp(Rtp{.payload_type = 224}.bytes())))),
    audio("EthernetPadding", ethernet(Ipv4{}(udp(kRtp))) + Bytes(20, 0))),
    case_name);

INSTANTIATE_TEST_SUITE_P(Kernel, SteerCase, ::testing::Values(
    to_kernel("Arp", ethernet(Bytes(28, 1), 0x0806)),
    to_kernel("Ssh", ethernet(Ipv4{.protocol = 6}(Bytes(40, 22)))),
    to_kernel("Ping", ethernet(Ipv4{.protocol = 1}(Bytes(64, 8)))),
    to_kernel("Ipv6", ethernet(ipv6(udp(kRtp)), kIpv6)),
    to_kernel("Ipv6InAVlan", ethernet(ipv6(udp(kRtp)), kIpv6, {kVlan})),
    to_kernel("OtherUdpPort", ethernet(Ipv4{}(udp(kRtp, 53)))),
    to_kernel("RtpPortSwapped", ethernet(Ipv4{}(udp(kRtp, 0x8c13)))),
    to_kernel("FirstFragment", ethernet(Ipv4{.fragment = 0x2000}(udp(kRtp)))),
    to_kernel("LaterFragment", ethernet(Ipv4{.fragment = 0x00b9}(udp(kRtp)))),
    to_kernel("ThreeVlanTags", ethernet(Ipv4{}(udp(kRtp)), 0x0800, {kProviderVlan, kVlan, kVlan})),
    to_kernel("UnknownEthertype", ethernet(Bytes(46, 0), 0x88cc)),
    to_kernel("HeaderLengthBelowFive", ethernet(Ipv4{.header_words = 4}(udp(kRtp)))),
    to_kernel("HeaderLengthPastTheEnd", cut(ethernet(Ipv4{.header_words = 15}(udp({}))), 14 + 28)),
    to_kernel("Version4SaysVersion6", ethernet(Ipv4{.version = 6}(udp(kRtp)))),
    to_kernel("EndsInAVlanTag", cut(ethernet(Ipv4{}(udp(kRtp)), 0x0800, {kVlan}), 16)),
    to_kernel("EndsInTheIpHeader", cut(kAudio, 14 + 19)),
    to_kernel("EndsInTheUdpHeader", cut(kAudio, kHeaders - 1)),
    to_kernel("EthernetAlone", cut(kAudio, 14))),
    case_name);

INSTANTIATE_TEST_SUITE_P(NotRtp, SteerCase, ::testing::Values(
    not_rtp("EmptyDatagram", ethernet(Ipv4{}(udp({})))),
    not_rtp("SevenBytes", ethernet(Ipv4{}(udp(cut(kRtp, 7))))),
    not_rtp("ElevenBytes", ethernet(Ipv4{}(udp(cut(kRtp, 11))))),
    not_rtp("Version0", ethernet(Ipv4{}(udp(Rtp{.version = 0}.bytes())))),
    not_rtp("Version1", ethernet(Ipv4{}(udp(Rtp{.version = 1}.bytes())))),
    not_rtp("Version3", ethernet(Ipv4{}(udp(Rtp{.version = 3}.bytes())))),
    not_rtp("ContributorsPastTheEnd", ethernet(Ipv4{}(udp(Rtp{.contributors = 15, .audio_bytes = 59}.bytes())))),
    not_rtp("ReportOfAnUnknownSession", ethernet(Ipv4{}(udp(Rtp{.payload_type = 200}.bytes())))),
    not_rtp("FirstRtcpType", ethernet(Ipv4{}(udp(Rtp{.payload_type = 192}.bytes())))),
    not_rtp("LastRtcpType", ethernet(Ipv4{}(udp(Rtp{.payload_type = 223}.bytes())))),
    not_rtp("UdpLengthBelowItsHeader", ethernet(Ipv4{}(udp(kRtp, kRtpPort, 7)))),
    not_rtp("UdpLengthBelowRtp", ethernet(Ipv4{}(udp(kRtp, kRtpPort, 8 + 11)))),
    not_rtp("UdpLengthCutsContributors", ethernet(Ipv4{}(udp(Rtp{.contributors = 2}.bytes(), kRtpPort, 8 + 19)))),
    not_rtp("FrameEndsInTheRtpHeader", cut(kAudio, kHeaders + 11))),
    case_name);

TEST_F(Steer, AnUnknownSenderIsDroppedAndAskedAboutOnce) {
    EXPECT_EQ(send(kAudio, 5), XDP_DROP);
    EXPECT_EQ(counted(VOICE_STEER_UNKNOWN_SESSION), 5U);
    const auto requests = asked();
    ASSERT_EQ(requests.size(), 1U);
    EXPECT_EQ(requests[0].ssrc, kSsrc);
}

TEST_F(Steer, AFloodOfUnknownSendersIsAskedAboutWithinTheAllowance) {
    const auto start = std::chrono::steady_clock::now();
    for (std::uint32_t ssrc = 1; ssrc <= 200; ++ssrc) {
        EXPECT_EQ(send(ethernet(Ipv4{}(udp(Rtp{.ssrc = ssrc}.bytes())))), XDP_DROP);
    }
    const auto took = std::chrono::ceil<std::chrono::seconds>(std::chrono::steady_clock::now() - start);
    EXPECT_LE(asked().size(), 10U * (1U + static_cast<unsigned>(took.count()))) << "ten at once, and ten a second";
    EXPECT_EQ(counted(VOICE_STEER_ADMISSION_FULL) + counted(VOICE_STEER_UNKNOWN_SESSION), 200U);
}

TEST_F(Steer, AdmissionMakesTheNextPacketPass) {
    EXPECT_EQ(send(kAudio), XDP_DROP);
    admit(kSsrc);
    EXPECT_EQ(send(kAudio), XDP_REDIRECT);
}

TEST_F(Steer, ABlockedSenderIsNotAskedAboutAgain) {
    admit(kSsrc, true);
    EXPECT_EQ(send(kAudio, 3), XDP_DROP);
    EXPECT_EQ(counted(VOICE_STEER_BLOCKED), 3U);
    EXPECT_TRUE(asked().empty());
}

TEST_F(Steer, AReportOfASessionGoesWithItsAudio) {
    admit(kSsrc);
    EXPECT_EQ(send(ethernet(Ipv4{}(udp(Bytes{0x80, 201, 0, 1, 0x0a, 0x0b, 0x0c, 0x0d})))), XDP_REDIRECT);
    EXPECT_EQ(send(ethernet(Ipv4{}(udp(Bytes{0x80, 201, 0, 1, 0x0a, 0x0b, 0x0c, 0x0e})))), XDP_DROP);
    EXPECT_TRUE(asked().empty()) << "a report's sender is not looked up";
}

TEST_F(Steer, ForgeriesFromItsOwnAddressTakeNothingOfASender) {
    set({.rtp_port = kRtpPort, .packets_per_s = 40, .admissions_per_s = 10});
    admit(kSsrc);
    set_sources(kSource);
    EXPECT_EQ(send(kAudio, VOICE_FORGERIES_PER_S), XDP_REDIRECT) << "which of them are its own is not known here";
    EXPECT_EQ(counted(VOICE_STEER_RATE_LIMITED), 0U);
}

TEST_F(Steer, AFloodFromASendersOwnAddressIsLimited) {
    admit(kSsrc);
    set_sources(kSource);
    EXPECT_EQ(send(kAudio, 100 * VOICE_FORGERIES_PER_S), XDP_DROP);
    EXPECT_GE(counted(VOICE_STEER_REDIRECTED), VOICE_FORGERIES_PER_S + 0U);
    EXPECT_GT(counted(VOICE_STEER_RATE_LIMITED), counted(VOICE_STEER_REDIRECTED));
}

TEST_F(Steer, ASenderMayTakeTurnsBetweenTwoAddresses) {
    admit(kSsrc);
    set_sources(voice_source_of_ipv4(htonl(0x0a000001), htons(40001)), kSource);
    for (const std::uint16_t port : std::initializer_list<std::uint16_t>{40000, 40001}) {
        EXPECT_EQ(send(ethernet(Ipv4{}(udp(kRtp, kRtpPort, -1, port))), 20 * VOICE_STRANGERS_PER_S), XDP_REDIRECT);
    }
    EXPECT_EQ(send(ethernet(Ipv4{}(udp(kRtp, kRtpPort, -1, 40002))), 20 * VOICE_STRANGERS_PER_S), XDP_DROP);
}

TEST_F(Steer, OthersInASessionsNameCostItsSenderNothing) {
    admit(kSsrc);
    set_sources(kSource);
    const Bytes from_elsewhere = ethernet(Ipv4{}(udp(kRtp, kRtpPort, -1, 40001)));
    EXPECT_EQ(send(from_elsewhere, 1000), XDP_DROP);
    EXPECT_GE(counted(VOICE_STEER_REDIRECTED), VOICE_STRANGERS_PER_S + 0U);
    EXPECT_LT(counted(VOICE_STEER_REDIRECTED), 1000U);
    const auto before = counted(VOICE_STEER_REDIRECTED);
    EXPECT_EQ(send(kAudio, 100), XDP_REDIRECT) << "a second's packets at once";
    EXPECT_EQ(counted(VOICE_STEER_REDIRECTED), before + 100);
}

TEST_F(Steer, OneLoudSessionCostsAnotherNothing) {
    admit(kSsrc);
    admit(kSsrc + 1, false, kSlot + 1);
    EXPECT_EQ(send(kAudio, 1000), XDP_DROP);
    EXPECT_EQ(send(ethernet(Ipv4{}(udp(Rtp{.ssrc = kSsrc + 1}.bytes())))), XDP_REDIRECT);
}

TEST_F(Steer, WithoutADataPlaneAudioIsDroppedAndTheKernelKeepsItsTraffic) {
    admit(kSsrc);
    unbind_socket();
    EXPECT_EQ(send(kAudio), XDP_DROP);
    EXPECT_EQ(counted(VOICE_STEER_NO_SOCKET), 1U);
    EXPECT_EQ(send(ethernet(Ipv4{.protocol = 6}(Bytes(40, 22)))), XDP_PASS);
}

TEST_F(Steer, ThePortIsASetting) {
    admit(kSsrc);
    set({.rtp_port = 6000, .packets_per_s = 100, .admissions_per_s = 10});
    EXPECT_EQ(send(kAudio), XDP_PASS);
    EXPECT_EQ(send(ethernet(Ipv4{}(udp(kRtp, 6000)))), XDP_REDIRECT);
}

// Every length of a valid packet, and random bytes: only the three verdicts occur, and only complete packets are
// redirected.
TEST_F(Steer, NoTruncationIsTakenForAudio) {
    admit(kSsrc);
    for (std::size_t bytes = 14; bytes < kHeaders + 12; ++bytes) {
        EXPECT_NE(send(cut(kAudio, bytes)), XDP_REDIRECT) << bytes;
    }
}

}  // namespace
