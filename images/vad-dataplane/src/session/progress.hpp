// The last recorded progress of a session, from another host or an earlier process of this one.
#pragma once

#include <cstdint>

namespace voice::session {

struct Progress {
    std::uint64_t next_frame = 0;  // position of the next frame; above every chunk's number so far
    std::uint64_t chunks = 0;
    std::uint32_t last_sequence = 0;  // of the last chunk, if there is one
};

}  // namespace voice::session
