// The C struct against the contract's numbers, which a Python test verifies.
#include "wire/audio_chunk.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>

#include "contract.h"

namespace {

using Chunk = voice_audio_chunk;

TEST(AudioChunk, IsLaidOutAsTheContractSays) {
    EXPECT_EQ(offsetof(Chunk, session), std::size_t{CONTRACT_SESSION_OFFSET});
    EXPECT_EQ(offsetof(Chunk, number), std::size_t{CONTRACT_NUMBER_OFFSET});
    EXPECT_EQ(offsetof(Chunk, sequence), std::size_t{CONTRACT_SEQUENCE_OFFSET});
    EXPECT_EQ(offsetof(Chunk, kind), std::size_t{CONTRACT_KIND_OFFSET});
    EXPECT_EQ(offsetof(Chunk, flags), std::size_t{CONTRACT_FLAGS_OFFSET});
    EXPECT_EQ(offsetof(Chunk, count), std::size_t{CONTRACT_COUNT_OFFSET});
    EXPECT_EQ(offsetof(Chunk, payload), std::size_t{CONTRACT_PAYLOAD_OFFSET});
    EXPECT_EQ(sizeof Chunk::session, std::size_t{CONTRACT_SESSION_BYTES});
    EXPECT_EQ(sizeof Chunk::number, std::size_t{CONTRACT_NUMBER_BYTES});
    EXPECT_EQ(sizeof Chunk::sequence, std::size_t{CONTRACT_SEQUENCE_BYTES});
    EXPECT_EQ(sizeof Chunk::kind, std::size_t{CONTRACT_KIND_BYTES});
    EXPECT_EQ(sizeof Chunk::flags, std::size_t{CONTRACT_FLAGS_BYTES});
    EXPECT_EQ(sizeof Chunk::count, std::size_t{CONTRACT_COUNT_BYTES});
    EXPECT_EQ(sizeof Chunk::payload, std::size_t{CONTRACT_PAYLOAD_BYTES});
}

TEST(AudioChunk, IsWhatGoesOnTheWire) {
    EXPECT_EQ(sizeof(Chunk), std::size_t{CONTRACT_PAYLOAD_OFFSET + CONTRACT_PAYLOAD_BYTES}) << "no padding at the end";
    EXPECT_EQ(sizeof Chunk::payload.log_mel, std::size_t{VOICE_CHUNK_PAYLOAD_BYTES});
    EXPECT_EQ(sizeof Chunk::payload.pcm, std::size_t{VOICE_CHUNK_PAYLOAD_BYTES});
    EXPECT_EQ(std::endian::native, std::endian::little) << "the struct is sent as it stands in memory";
}

}  // namespace
