// libFuzzer: the response to any request is one line of JSON.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "control/commands.hpp"
#include "data_plane.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static voice::test::FakeDataPlane data_plane;
    const auto reply = voice::control::answer({reinterpret_cast<const char*>(data), size}, voice::control::Rights::kChange,
                                              data_plane);
    if (reply.line.find('\n') != std::string::npos || !nlohmann::json::accept(reply.line)) {
        std::abort();
    }
    return 0;
}
