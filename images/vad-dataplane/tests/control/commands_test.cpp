#include "control/commands.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "data_plane.hpp"

namespace {

using nlohmann::json;
using voice::control::answer;
using voice::control::Rights;
using voice::control::Answer;

class Commands : public ::testing::Test {
protected:
    json ask(std::string_view request) {
        const auto reply = answer(request, rights_, data_plane_);
        EXPECT_EQ(reply.line.find('\n'), std::string::npos) << "an answer is one line";
        return json::parse(reply.line);
    }
    json result(std::string_view request) {
        const auto reply = ask(request);
        EXPECT_EQ(reply.at("ok"), true) << reply;
        return reply.at("result");
    }
    std::string error(std::string_view request) {
        const auto reply = ask(request);
        EXPECT_EQ(reply.at("ok"), false) << reply;
        return reply.value("error", "");
    }

    voice::test::FakeDataPlane data_plane_;
    Rights rights_ = Rights::kChange;
};

TEST_F(Commands, Status) {
    EXPECT_EQ(result(R"({"command":"status"})"),
              json::parse(R"({"state":"ready","host":"i-1","data_path":"af_xdp","interface":"eth0",
                              "vad_module":"/vad.so","sessions":3,"uptime_s":9})"));
}

TEST_F(Commands, CountersAreTheDocumentThatTelemetryReads) {
    const auto found = result(R"({"command":"counters"})");
    EXPECT_EQ(found.at("sessions"), 3);
    EXPECT_EQ(found.at("max_sessions"), 8);
    EXPECT_EQ(found.at("rx_ring_percent"), 55.0) << "of the fullest";
    EXPECT_EQ(found.at("queues").at(1), json::parse(R"({"queue":1,"rx_ring_percent":55.0,"chunk_ring_percent":0.0})"));
    EXPECT_EQ(found.at("queues").at(0).at("chunk_ring_percent"), 25.0);
    EXPECT_EQ(found.at("drops").at("late"), 7);
    EXPECT_EQ(found.at("drops").size(), voice::control::kDropReasonNames.size());
    EXPECT_EQ(found.at("vad"), json::parse(R"({"frames":200,"silent_frames":50,"stopped":0,"silence_percent":25.0})"));
    EXPECT_EQ(found.at("stages").at("vad"), json::parse(R"({"cycles":1000,"items":4,"cycles_per_item":250.0})"));
    EXPECT_EQ(found.at("stages").at("idle").at("cycles_per_item"), 0.0);
    EXPECT_EQ(found.at("events").at("ship"), json::parse(R"({"sent":12,"stalls":1})"));
    EXPECT_EQ(found.at("events").at("admission"), json::object());
}

TEST_F(Commands, SessionsComeInPages) {
    const auto page = result(R"({"command":"sessions","first":10,"limit":2})");
    ASSERT_EQ(page.size(), 2U);
    EXPECT_EQ(page.at(1), json::parse(R"({"ssrc":11,"encrypted":true,"packets":11,"concealed":0,"wrong_payload":0,"chunks":0,
                                          "speaking":false})"));
    EXPECT_EQ(result(R"({"command":"sessions"})").size(), 100U);
    EXPECT_EQ(result(R"({"command":"sessions","limit":1000})").size(), 1000U);
    EXPECT_EQ(result(R"({"command":"sessions","first":9999})").size(), 0U);
}

TEST_F(Commands, DrainIsPassedOn) {
    EXPECT_FALSE(answer(R"({"command":"status"})", rights_, data_plane_).drain);
    EXPECT_TRUE(answer(R"({"command":"drain"})", rights_, data_plane_).drain);
    EXPECT_FALSE(answer(R"({"command":"drain","now":true})", rights_, data_plane_).drain);
}

TEST_F(Commands, WhoMayOnlyReadChangesNothing) {
    rights_ = Rights::kRead;
    EXPECT_NE(error(R"({"command":"drain"})").find("drain is for the user"), std::string::npos);
    EXPECT_NE(error(R"({"command":"swap-vad","module":"/good.so"})").find("swap-vad is for"), std::string::npos);
    EXPECT_EQ(result(R"({"command":"status"})").at("state"), "ready");
    EXPECT_FALSE(result(R"({"command":"sessions"})").empty());
}

TEST_F(Commands, TheVadIsSwappedOrTheReasonTold) {
    EXPECT_EQ(result(R"({"command":"swap-vad","module":"/new.so"})").at("vad_module"), "/new.so");
    EXPECT_EQ(error(R"({"command":"swap-vad","module":"/bad.so"})"), "/bad.so is no VAD module");
    EXPECT_EQ(data_plane_.vad_module, "/new.so");
}

TEST_F(Commands, WhatIsNotUtf8ComesOutAsJsonAllTheSame) {
    data_plane_.vad_module = "/\xff\xfe.so";
    EXPECT_EQ(result(R"({"command":"status"})").at("vad_module"), "/\uFFFD\uFFFD.so");
}

class BadRequest : public Commands, public ::testing::WithParamInterface<std::string> {};

TEST_P(BadRequest, IsRefusedWithAReason) { EXPECT_FALSE(error(GetParam()).empty()); }

INSTANTIATE_TEST_SUITE_P(Each, BadRequest, ::testing::Values(
    "", " ", "status", "null", "[]", "{}", "{", "\"status\"", R"({"command":1})", R"({"command":null})",
    R"({"command":"reboot"})", R"({"Command":"status"})", R"({"command":"status","verbose":true})",
    R"({"command":"status"}{"command":"status"})", R"({"command":"sessions","limit":1001})",
    R"({"command":"sessions","limit":-1})", R"({"command":"sessions","limit":1.5})",
    R"({"command":"sessions","limit":"1"})", R"({"command":"sessions","first":1e30})",
    R"({"command":"sessions","first":18446744073709551616})", R"({"command":"sessions","offset":1})",
    R"({"command":"swap-vad"})", R"({"command":"swap-vad","module":""})", R"({"command":"swap-vad","module":"vad.so"})",
    R"({"command":"swap-vad","module":["/vad.so"]})", R"({"command":"swap-vad","module":"/vad.so\u0000"})",
    "{\"command\":\"\xff\"}", std::string("{\"command\":\"status\"}\0", 21), std::string(4000, '['),
    std::string(1300, '[') + std::string(1300, ']'),
    R"({"command":"status","x":)" + std::string(1000, '[') + std::string(1000, ']') + "}",
    R"({"command":"status","x":")" + std::string(5000, 'x') + "\"}"));

}  // namespace
