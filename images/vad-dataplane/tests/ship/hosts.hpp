// Hosts and chunks for tests.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ship/host.hpp"
#include "wire/audio_chunk.h"

namespace voice::test {

inline ship::Host host(std::string id, ship::HostKind kind, std::uint32_t free_slots, const char* address = "127.0.0.1",
                       std::uint16_t port = 5006) {
    ship::Host host;
    host.id = std::move(id);
    host.kind = kind;
    host.free_slots = free_slots;
    host.heartbeat = "1";
    host.address.sin_family = AF_INET;
    host.address.sin_port = htons(port);
    inet_pton(AF_INET, address, &host.address.sin_addr);
    return host;
}

inline ship::Host draining(ship::Host host) {
    host.draining = true;
    return host;
}

inline ship::Hosts hosts(std::vector<ship::Host> list) {
    return std::make_shared<const std::vector<ship::Host>>(std::move(list));
}

class HostList final : public ship::HostSource {
public:
    explicit HostList(std::vector<ship::Host> list) : hosts_(test::hosts(std::move(list))) {}
    [[nodiscard]] ship::Hosts take() noexcept override {
        const std::scoped_lock lock(mutex_);
        return std::exchange(hosts_, nullptr);
    }
    void set(std::vector<ship::Host> list) {
        const std::scoped_lock lock(mutex_);
        hosts_ = test::hosts(std::move(list));
    }

private:
    std::mutex mutex_;
    ship::Hosts hosts_;
};

// Both ends of the payload carry the sequence.
inline void fill(voice_audio_chunk& chunk, std::uint32_t session, std::uint32_t sequence, unsigned flags = 0) {
    chunk = {};
    chunk.session = session;
    chunk.sequence = sequence;
    chunk.kind = VOICE_CHUNK_PCM16;
    chunk.flags = static_cast<std::uint8_t>(flags);
    chunk.count = VOICE_CHUNK_SAMPLES;
    chunk.payload.pcm[0] = static_cast<std::int16_t>(sequence);
    chunk.payload.pcm[VOICE_CHUNK_SAMPLES - 1] = static_cast<std::int16_t>(sequence);
}

}  // namespace voice::test
