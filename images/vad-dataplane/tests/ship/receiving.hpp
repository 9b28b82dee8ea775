// ASR hosts and a queue for tests of the shipper.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "ship/hosts.hpp"
#include "ship/shipper.hpp"
#include "support/veth.hpp"

namespace voice::test {

// An ASR host: a UDP socket on a loopback address.
class Receiver {
public:
    explicit Receiver(const char* address = "127.0.0.1") : socket_(socket(AF_INET, SOCK_DGRAM, 0)) {
        const int bytes = 64 << 20;
        setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
        auto at = host("", ship::HostKind::kNeuron, 0, address, 5006).address;
        EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    }
    // The next chunk; nothing if none arrives.
    std::optional<voice_audio_chunk> next(int limit_ms = 1000) {
        pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
        voice_audio_chunk chunk{};
        if (poll(&ready, 1, limit_ms) != 1 || recv(socket_.get(), &chunk, sizeof chunk, MSG_TRUNC) != sizeof chunk) {
            return std::nullopt;
        }
        return chunk;
    }

    // From now on datagrams are refused.
    void close() { socket_.reset(); }

private:
    Descriptor socket_;
};

// A ring of 100 slots that shows all its chunks, so that slots are percentages.
class Queue final : public ship::ChunkSource {
public:
    void put(std::uint32_t session, std::uint32_t sequence, unsigned flags = 0) {
        fill(chunks_.emplace_back(), session, sequence, flags);
    }
    const voice_audio_chunk* peek(std::size_t ahead) override {
        return ahead < chunks_.size() ? &chunks_[ahead] : nullptr;
    }
    void release(std::size_t count) override {
        for (; count != 0; --count) {
            chunks_.pop_front();
        }
    }
    [[nodiscard]] std::size_t occupancy() const override { return chunks_.size(); }
    [[nodiscard]] std::size_t slots() const override { return 100; }

private:
    std::deque<voice_audio_chunk> chunks_;
};

}  // namespace voice::test
