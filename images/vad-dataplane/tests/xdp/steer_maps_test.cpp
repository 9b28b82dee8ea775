// The maps of the program on a veth pair, in the kernel.
#include "xdp/steer_maps.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <unistd.h>

#include <span>

#include "admission/steer_gate.hpp"
#include "packets.hpp"
#include "steer.skel.h"
#include "support/eventually.hpp"
#include "support/veth.hpp"
#include "wire/packet.h"

namespace {

using namespace std::chrono_literals;
using namespace voice;
using namespace voice::test;
using xdp::SteerMaps;

const voice_steer_settings kSettings{
    .rtp_port = kRtpPort, .packets_per_s = 100, .admissions_per_s = 100'000};

Bytes audio(std::uint32_t ssrc = kSsrc) { return ethernet(Ipv4{}(udp(Rtp{.ssrc = ssrc}.bytes()))); }
Bytes ssh() { return ethernet(Ipv4{.protocol = 6}(Bytes(40, 22))); }
Bytes arp() { return ethernet(Bytes(46, 1), 0x0806); }

__u32 attached_program() {
    __u32 id = 0;
    EXPECT_EQ(bpf_xdp_query_id(static_cast<int>(if_nametoindex(kNear)), 0, &id), 0);
    return id;
}

// Like DPDK's driver: without a link, so that the program stays when the process ends.
void attach() {
    auto* program = steer_bpf__open_and_load();
    ASSERT_NE(program, nullptr);
    const auto index = static_cast<int>(if_nametoindex(kNear));
    EXPECT_EQ(bpf_xdp_attach(index, bpf_program__fd(program->progs.steer), 0, nullptr), 0);
    steer_bpf__destroy(program);
}

class Maps : public ::testing::Test {
protected:
    void SetUp() override {
        attach();
        maps_ = SteerMaps::open(kNear, error_);
        ASSERT_NE(maps_, nullptr) << error_;
        ASSERT_TRUE(maps_->configure(kSettings));
    }
    void TearDown() override {
        maps_.reset();
        EXPECT_TRUE(SteerMaps::remove_leftover(kNear, error_)) << error_;
        EXPECT_EQ(attached_program(), 0U) << "the interface still runs a program";
    }

    // Counters rise once the kernel has processed a frame.
    [[nodiscard]] bool counts(voice_steer_count what, std::uint64_t value) const {
        return eventually([&] { return maps_->counts()[what] == value; });
    }

    std::string error_;
    std::unique_ptr<SteerMaps> maps_;
};

TEST_F(Maps, SteerAudioAndLeaveTheRestAlone) {
    const Wire far(kFar);
    const Wire near(kNear);
    far.send(ssh());
    far.send(arp());
    EXPECT_TRUE(near.receives(arp(), kPatience));
    far.send(audio());
    ASSERT_TRUE(counts(VOICE_STEER_UNKNOWN_SESSION, 1));
    std::vector<std::uint32_t> asked;
    maps_->poll_requests(kPatience, [&](const voice_steer_admission& request) {
        asked.push_back(request.ssrc);
        return true;
    });
    EXPECT_EQ(asked, std::vector<std::uint32_t>{kSsrc});
    ASSERT_TRUE(maps_->admit(kSsrc, 5));
    far.send(audio());
    EXPECT_TRUE(counts(VOICE_STEER_NO_SOCKET, 1)) << "let in, and no socket is bound";
    EXPECT_FALSE(near.receives(audio(), 50ms)) << "audio reached the kernel";
    EXPECT_TRUE(maps_->block(kSsrc));
    far.send(audio());
    EXPECT_TRUE(counts(VOICE_STEER_BLOCKED, 1));
    EXPECT_TRUE(maps_->remove(kSsrc));
    EXPECT_TRUE(maps_->remove(kSsrc)) << "that it is gone is what was wanted";
    EXPECT_TRUE(SteerMaps::remove_leftover(kNear, error_)) << error_;
    far.send(audio());
    EXPECT_TRUE(near.receives(audio(), kPatience)) << "detached, the interface is as it was";
}

TEST_F(Maps, ASessionsSenderHasAnAllowanceOfItsOwn) {
    const Wire far(kFar);
    ASSERT_TRUE(maps_->admit(kSsrc, 5));
    const auto send = [&](int packets) {
        for (int i = 0; i < packets; ++i) {
            far.send(audio());
        }
    };
    send(VOICE_STRANGERS_PER_S + 10);
    ASSERT_TRUE(eventually([&] { return maps_->counts()[VOICE_STEER_RATE_LIMITED] > 0; })) << "nobody is its sender yet";
    const auto before = maps_->counts()[VOICE_STEER_NO_SOCKET];
    maps_->set_sources(5, {voice_source_of_ipv4(htonl(0x0a000001), htons(40000)), 0});
    send(50);
    EXPECT_TRUE(counts(VOICE_STEER_NO_SOCKET, before + 50));
}

TEST_F(Maps, AStrangerThatIsAuthenticatedIsPaidBack) {
    const Wire far(kFar);
    ASSERT_TRUE(maps_->admit(kSsrc, 5));
    for (std::uint64_t n = 1; n <= 4 * VOICE_STRANGERS_PER_S; ++n) {
        far.send(audio());
        ASSERT_TRUE(counts(VOICE_STEER_NO_SOCKET, n)) << "as many as it likes, since each was its sender's";
        maps_->pay_back(5);
    }
    EXPECT_EQ(maps_->counts()[VOICE_STEER_RATE_LIMITED], 0U);
}

TEST_F(Maps, TellAnInterfaceThatIsNotThere) {
    EXPECT_EQ(SteerMaps::open("nowhere0", error_), nullptr);
    EXPECT_NE(error_.find("nowhere0"), std::string::npos);
}

TEST(SteerMaps, LeaveAnothersProgramAlone) {
    std::string error;
    const std::array<bpf_insn, 2> pass{{
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
    }};
    const Descriptor program(bpf_prog_load(BPF_PROG_TYPE_XDP, "other", "GPL", pass.data(), pass.size(), nullptr));
    ASSERT_TRUE(program.is_open());
    const auto index = static_cast<int>(if_nametoindex(kNear));
    ASSERT_EQ(bpf_xdp_attach(index, program.get(), 0, nullptr), 0);
    EXPECT_FALSE(SteerMaps::remove_leftover(kNear, error));
    EXPECT_NE(error.find("other"), std::string::npos) << error;
    EXPECT_EQ(SteerMaps::open(kNear, error), nullptr);
    EXPECT_EQ(bpf_xdp_detach(index, 0, nullptr), 0);
}

TEST_F(Maps, RequestsThatARoundDoesNotTakeStayForTheNext) {
    const Wire far(kFar);
    for (std::uint32_t ssrc = 1; ssrc <= 30; ++ssrc) {
        far.send(audio(ssrc));
    }
    ASSERT_TRUE(counts(VOICE_STEER_UNKNOWN_SESSION, 30));
    admission::SteerGate gate(*maps_);
    std::array<std::uint32_t, 20> ssrcs{};
    ASSERT_EQ(gate.wait(ssrcs, kPatience), 20U);
    EXPECT_EQ(ssrcs[19], 20U);
    ASSERT_EQ(gate.wait(ssrcs, kPatience), 10U);
    EXPECT_EQ(ssrcs[9], 30U);
    EXPECT_EQ(gate.wait(ssrcs, 20ms), 0U);
}

class OwnNetwork : public ::testing::Environment {
    void SetUp() override { enter_own_network(); }
};
const auto* const kNetwork = ::testing::AddGlobalTestEnvironment(new OwnNetwork);

}  // namespace
