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

// What the commands work on; called on the control thread.
class DataPlane {
public:
    virtual ~DataPlane() = default;
    virtual Status status() = 0;
    virtual Telemetry telemetry() = 0;
    // At most `limit` sessions from the first-th on, in an order that stays while none comes or goes.
    virtual std::vector<Session> sessions(std::size_t first, std::size_t limit) = 0;
    // Empty when the module is in use now, otherwise why the old one stays.
    virtual std::string swap_vad(const std::string& module) = 0;

    // Whether a packet that comes now would be worked on.
    virtual bool can_flow() = 0;
    // Whether health checks are to find us well that come where no kernel answers.
    virtual void set_healthy(bool healthy) = 0;
    // Lets nobody new in. May be called more than once.
    virtual void begin_drain() = 0;
    // Whether the last session has ended and its audio is shipped.
    virtual bool is_drained() = 0;
};

enum class Rights : std::uint8_t { kRead, kChange };

struct Answer {
    std::string line;    // without its end
    bool drain = false;  // the program is to drain
};

// Answers one line, whatever it holds.
Answer answer(std::string_view request, Rights rights, DataPlane& data_plane);

}  // namespace voice::control
