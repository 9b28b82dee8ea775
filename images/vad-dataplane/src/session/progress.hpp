// How far a session had come when another host, or an earlier process of this one, last said so.
#pragma once

#include <cstdint>

namespace voice::session {

struct Progress {
    std::uint64_t next_frame = 0;  // place of the next frame; no chunk so far has a number as high
    std::uint64_t chunks = 0;
    std::uint32_t last_sequence = 0;  // of the last chunk, where there is one
};

}  // namespace voice::session
