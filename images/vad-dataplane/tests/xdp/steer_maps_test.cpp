// The loader on a veth pair, in the kernel: attaches, steers, and leaves the interface as it was.
#include "xdp/steer_loader.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <span>
#include <thread>

#include "admission/steer_gate.hpp"
#include "packets.hpp"
#include "steer.skel.h"
#include "support/eventually.hpp"
#include "support/veth.hpp"

namespace {

using namespace std::chrono_literals;
using namespace voice;
using namespace voice::test;
using xdp::Mode;
using xdp::SteerLoader;

const voice_steer_settings kSettings{
    .rtp_port = kRtpPort, .packets_per_s = 100, .burst_packets = 50, .admissions_per_s = 100'000};

Bytes audio(std::uint32_t ssrc = kSsrc) { return ethernet(Ipv4{}(udp(Rtp{.ssrc = ssrc}.bytes()))); }
Bytes ssh() { return ethernet(Ipv4{.protocol = 6}(Bytes(40, 22))); }
Bytes arp() { return ethernet(Bytes(46, 1), 0x0806); }

__u32 attached_program() {
    __u32 id = 0;
    EXPECT_EQ(bpf_xdp_query_id(static_cast<int>(if_nametoindex(kNear)), 0, &id), 0);
    return id;
}

class Loader : public ::testing::Test {
protected:
    void SetUp() override {
        loader_ = SteerLoader::load(error_);
        ASSERT_NE(loader_, nullptr) << error_;
        ASSERT_TRUE(loader_->configure(kSettings));
    }
    void TearDown() override {
        loader_.reset();
        EXPECT_EQ(attached_program(), 0U) << "the interface still runs a program";
    }

    // Counters rise when the kernel has worked on a frame.
    [[nodiscard]] bool counts(voice_steer_count what, std::uint64_t value) const {
        return eventually([&] { return loader_->counts()[what] == value; });
    }

    std::vector<std::uint32_t> requests(std::size_t most = 100'000) {
        std::vector<std::uint32_t> ssrcs;
        loader_->poll_requests(kPatience, [&](const voice_steer_admission& request) {
            ssrcs.push_back(request.ssrc);
            return ssrcs.size() < most;
        });
        return ssrcs;
    }

    std::string error_;
    std::unique_ptr<SteerLoader> loader_;
};

class LoaderInMode : public Loader, public ::testing::WithParamInterface<Mode> {};

TEST_P(LoaderInMode, SteersAudioAndLeavesTheRestAlone) {
    ASSERT_TRUE(loader_->attach(kNear, GetParam(), error_)) << error_;
    EXPECT_NE(attached_program(), 0U);
    const Wire far(kFar);
    const Wire near(kNear);
    far.send(ssh());
    far.send(arp());
    EXPECT_TRUE(near.receives(arp(), kPatience));
    far.send(audio());
    ASSERT_TRUE(counts(VOICE_STEER_UNKNOWN_SESSION, 1));
    EXPECT_EQ(requests(), std::vector<std::uint32_t>{kSsrc});
    ASSERT_TRUE(loader_->admit(kSsrc));
    far.send(audio());
    EXPECT_TRUE(counts(VOICE_STEER_NO_SOCKET, 1)) << "let in, and no socket is bound";
    EXPECT_FALSE(near.receives(audio(), 50ms)) << "audio reached the kernel";
    loader_->detach();
    far.send(audio());
    EXPECT_TRUE(near.receives(audio(), kPatience)) << "detached, the interface is as it was";
}

INSTANTIATE_TEST_SUITE_P(Each, LoaderInMode, ::testing::Values(Mode::kNative, Mode::kGeneric),
                         [](const auto& mode) { return mode.param == Mode::kNative ? "Native" : "Generic"; });

TEST_F(Loader, DoesNotTakeAnInterfaceFromAnother) {
    ASSERT_TRUE(loader_->attach(kNear, Mode::kNative, error_)) << error_;
    const auto second = SteerLoader::load(error_);
    EXPECT_FALSE(second->attach(kNear, Mode::kNative, error_));
    EXPECT_NE(error_.find(kNear), std::string::npos) << error_;
    EXPECT_FALSE(SteerLoader::remove_leftover(kNear, error_)) << "removed a living process's program";
    EXPECT_TRUE(loader_->is_attached());
}

TEST_F(Loader, TellsAnInterfaceThatIsNotThere) {
    EXPECT_FALSE(loader_->attach("nowhere0", Mode::kNative, error_));
    EXPECT_NE(error_.find("nowhere0"), std::string::npos);
    EXPECT_EQ(SteerLoader::adopt("nowhere0", error_), nullptr);
}

TEST_F(Loader, LeavesNothingBehindWhenItsProcessIsKilled) {
    const pid_t child = fork();
    if (child == 0) {
        std::string error;
        const auto loader = SteerLoader::load(error);
        const bool attached = loader && loader->attach(kNear, Mode::kNative, error);
        if (!attached) {
            _exit(1);
        }
        pause();
    }
    EXPECT_TRUE(eventually([] { return attached_program() != 0; }));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(eventually([] { return attached_program() == 0; }));
}

// As DPDK's driver does: without a link, so that the program stays when the process goes.
void attach_without_link() {
    auto* program = steer_bpf__open_and_load();
    ASSERT_NE(program, nullptr);
    const auto index = static_cast<int>(if_nametoindex(kNear));
    EXPECT_EQ(bpf_xdp_attach(index, bpf_program__fd(program->progs.steer), 0, nullptr), 0);
    steer_bpf__destroy(program);
}

TEST_F(Loader, RemovesWhatAKilledDpdkLeft) {
    attach_without_link();
    ASSERT_NE(attached_program(), 0U);
    EXPECT_TRUE(SteerLoader::remove_leftover(kNear, error_)) << error_;
    EXPECT_EQ(attached_program(), 0U);
    EXPECT_TRUE(SteerLoader::remove_leftover(kNear, error_)) << "where nothing is left";
}

TEST_F(Loader, LeavesAnothersProgramAlone) {
    const std::array<bpf_insn, 2> pass{{
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
    }};
    const Descriptor program(bpf_prog_load(BPF_PROG_TYPE_XDP, "other", "GPL", pass.data(), pass.size(), nullptr));
    ASSERT_TRUE(program.is_open());
    const auto index = static_cast<int>(if_nametoindex(kNear));
    ASSERT_EQ(bpf_xdp_attach(index, program.get(), 0, nullptr), 0);
    EXPECT_FALSE(SteerLoader::remove_leftover(kNear, error_));
    EXPECT_NE(error_.find("other"), std::string::npos) << error_;
    EXPECT_EQ(SteerLoader::adopt(kNear, error_), nullptr);
    EXPECT_EQ(bpf_xdp_detach(index, 0, nullptr), 0);
}

TEST_F(Loader, AdoptsTheMapsOfAnAttachedProgram) {
    attach_without_link();
    const auto adopted = SteerLoader::adopt(kNear, error_);
    ASSERT_NE(adopted, nullptr) << error_;
    ASSERT_TRUE(adopted->configure(kSettings));
    const Wire far(kFar);
    far.send(audio());
    std::vector<std::uint32_t> asked;
    adopted->poll_requests(kPatience, [&](const voice_steer_admission& request) {
        asked.push_back(request.ssrc);
        return true;
    });
    EXPECT_EQ(asked, std::vector<std::uint32_t>{kSsrc});
    EXPECT_TRUE(adopted->block(kSsrc));
    far.send(audio());
    EXPECT_TRUE(eventually([&] { return adopted->counts()[VOICE_STEER_BLOCKED] == 1; }));
    EXPECT_TRUE(SteerLoader::remove_leftover(kNear, error_)) << error_;
}

TEST_F(Loader, KeepsSessions) {
    for (std::uint32_t ssrc = 0; ssrc < 5000; ++ssrc) {
        ASSERT_TRUE(ssrc % 2 == 0 ? loader_->admit(ssrc) : loader_->block(ssrc));
    }
    EXPECT_EQ(loader_->find(4)->blocked, 0U);
    EXPECT_EQ(loader_->find(5)->blocked, 1U);
    EXPECT_FALSE(loader_->find(5000));
    std::set<std::uint32_t> seen;
    loader_->each([&](std::uint32_t ssrc, const voice_steer_session& session) {
        EXPECT_EQ(session.blocked, ssrc % 2);
        EXPECT_TRUE(seen.insert(ssrc).second);
    });
    EXPECT_EQ(seen.size(), 5000U);
    EXPECT_TRUE(loader_->remove(4));
    EXPECT_TRUE(loader_->remove(4)) << "that it is gone is what was wanted";
    EXPECT_FALSE(loader_->find(4));
}

TEST_F(Loader, RequestsThatARoundDoesNotTakeStayForTheNext) {
    ASSERT_TRUE(loader_->attach(kNear, Mode::kNative, error_)) << error_;
    const Wire far(kFar);
    for (std::uint32_t ssrc = 1; ssrc <= 30; ++ssrc) {
        far.send(audio(ssrc));
    }
    ASSERT_TRUE(counts(VOICE_STEER_UNKNOWN_SESSION, 30));
    admission::SteerGate gate(*loader_);
    std::array<std::uint32_t, 20> ssrcs{};
    ASSERT_EQ(gate.wait(ssrcs, kPatience), 20U);
    EXPECT_EQ(ssrcs[19], 20U);
    ASSERT_EQ(gate.wait(ssrcs, kPatience), 10U);
    EXPECT_EQ(ssrcs[9], 30U);
    EXPECT_EQ(gate.wait(ssrcs, 20ms), 0U);
}

TEST_F(Loader, TheGateTellsHowLongASessionIsSilent) {
    ASSERT_TRUE(loader_->attach(kNear, Mode::kNative, error_)) << error_;
    admission::SteerGate gate(*loader_);
    ASSERT_TRUE(gate.admit(kSsrc));
    std::this_thread::sleep_for(500ms);
    const auto silent_for = [&] {
        std::chrono::nanoseconds found{-1};
        gate.each([&](const admission::Gate::Session& session) { found = session.silent_for; });
        return found;
    };
    EXPECT_GE(silent_for(), 500ms);
    const auto sent_at = std::chrono::steady_clock::now();
    Wire(kFar).send(audio());
    ASSERT_TRUE(counts(VOICE_STEER_NO_SOCKET, 1));
    const auto silent = silent_for();
    EXPECT_LE(silent, std::chrono::steady_clock::now() - sent_at);
}

class OwnNetwork : public ::testing::Environment {
    void SetUp() override { enter_own_network(); }
};
const auto* const kNetwork = ::testing::AddGlobalTestEnvironment(new OwnNetwork);

}  // namespace
