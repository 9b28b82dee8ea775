// The control protocol: a JSON object a line, and a JSON object a line back.
//
//   {"command": "status"}                                  what it is and does
//   {"command": "counters"}                                telemetry
//   {"command": "sessions", "first": 0, "limit": 100}      a page of sessions
//   {"command": "drain"}                                   as SIGTERM does
//   {"command": "swap-vad", "module": "/path"}             another VAD module, with no stream lost
//
// The last two are for the program's own user: who is in the socket's group, as telemetry is, changes nothing.
//
// Answers: {"ok": true, "result": ...} or {"ok": false, "error": "..."}. JSON is read and written with nlohmann/json:
// simdjson is faster and only reads, and a few lines a second are no load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "control/telemetry.hpp"

namespace voice::control {

inline constexpr std::size_t kLongestRequest = 4096;
inline constexpr std::size_t kMostSessions = 1000;  // of one answer

// The target of the commands; called on the control thread.
class DataPlane {
public:
    virtual ~DataPlane() = default;
    virtual Status status() = 0;
    virtual Telemetry telemetry() = 0;
    // At most `limit` sessions starting at `first`, in an order that is stable while no session opens or closes.
    virtual std::vector<Session> sessions(std::size_t first, std::size_t limit) = 0;
    // Empty when the module is in use now, otherwise the reason why the old one stays.
    virtual std::string swap_vad(const std::string& module) = 0;

    // Whether a packet that arrives now would be processed.
    virtual bool can_flow() = 0;
    // Sets the health that health checks see where no kernel answers.
    virtual void set_healthy(bool healthy) = 0;
    // Stops admission. May be called more than once.
    virtual void begin_drain() = 0;
    // Whether the last session has ended and its audio is shipped.
    virtual bool is_drained() = 0;
};

enum class Rights : std::uint8_t { kRead, kChange };

struct Answer {
    std::string line;    // without its end
    bool drain = false;  // the program must drain
};

// Returns the response to any line.
Answer answer(std::string_view request, Rights rights, DataPlane& data_plane);

}  // namespace voice::control
