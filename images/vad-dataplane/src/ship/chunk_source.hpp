// The consumer's side of one ring of chunks.
#pragma once

#include <cassert>
#include <cstddef>

#include "wire/audio_chunk.h"

namespace voice::ship {

class ChunkSource {
public:
    virtual ~ChunkSource() = default;
    // The chunk that is `ahead` places behind the oldest; null where there is none. Valid until it is released.
    virtual const voice_audio_chunk* peek(std::size_t ahead) = 0;
    // Hands the oldest `count` back.
    virtual void release(std::size_t count) = 0;
    [[nodiscard]] virtual std::size_t occupancy() const = 0;
    [[nodiscard]] virtual std::size_t slots() const = 0;
};

// A ring that shows its oldest chunk alone is shipped one by one; one with peek(ahead), a batch at a time.
template <typename Ring>
class RingSource final : public ChunkSource {
public:
    explicit RingSource(Ring& ring) noexcept : ring_(ring) {}

    const voice_audio_chunk* peek(std::size_t ahead) override {
        if constexpr (requires { ring_.peek(ahead); }) {
            return ring_.peek(ahead);
        } else {
            return ahead == 0 ? ring_.peek() : nullptr;
        }
    }
    void release(std::size_t count) override {
        for (; count != 0; --count) {
            ring_.release();
        }
    }
    [[nodiscard]] std::size_t occupancy() const override { return ring_.occupancy(); }
    [[nodiscard]] std::size_t slots() const override { return Ring::kSlots; }

private:
    Ring& ring_;
};

}  // namespace voice::ship
