// The consumer's side of one ring of chunks.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>

#include "wire/audio_chunk.h"

namespace voice::ship {

class ChunkSource {
public:
    virtual ~ChunkSource() = default;
    // The chunk `ahead` places after the oldest; null if there is none. Valid until it is released.
    virtual const voice_audio_chunk* peek(std::size_t ahead) = 0;
    // Frees the oldest `count` chunks.
    virtual void release(std::size_t count) = 0;
    [[nodiscard]] virtual std::size_t occupancy() const = 0;
    [[nodiscard]] virtual std::size_t slots() const = 0;
    // Called with the destination of a session's chunks: at every start of speech, and when it changes.
    virtual void on_host(std::uint64_t /*session*/, const sockaddr_in& /*host*/) {}
};

template <typename Ring>
class RingSource : public ChunkSource {
public:
    explicit RingSource(Ring& ring) noexcept : ring_(ring) {}

    const voice_audio_chunk* peek(std::size_t ahead) override { return ring_.peek(ahead); }
    void release(std::size_t count) override { ring_.release(count); }
    [[nodiscard]] std::size_t occupancy() const override { return ring_.occupancy(); }
    [[nodiscard]] std::size_t slots() const override { return Ring::kSlots; }

private:
    Ring& ring_;
};

}  // namespace voice::ship
