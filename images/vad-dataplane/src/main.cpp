// The VAD data plane: see README.md.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <variant>

#include "config/config.hpp"
#include "control/server.hpp"
#include "pipeline/data_plane.hpp"
#include "support/privileges.hpp"

namespace {

constexpr int kFailed = 1;
constexpr int kRefused = 2;

int run(const voice::config::Config& config) {
    voice::pipeline::DataPlane data_plane(config);
    voice::control::Server server({.control_socket = config.control_socket,
                                   .health_port = config.health_port,
                                   .drain_timeout = config.drain_timeout},
                                  data_plane);
    std::string error;
    if (!server.open(error)) {
        std::fprintf(stderr, "vad-dataplane: %s\n", error.c_str());
        return kFailed;
    }
    data_plane.start();
    voice::confine();
    const auto exit = server.run();
    data_plane.stop();
    return exit == voice::control::Server::Exit::kDrained ? 0 : kFailed;
}

}  // namespace

int main() {
    voice::control::Server::take_signals();
    const auto loaded = voice::config::load([](const char* name) { return std::getenv(name); });
    if (const auto* problems = std::get_if<std::vector<voice::config::Problem>>(&loaded)) {
        for (const auto& problem : *problems) {
            std::fprintf(stderr, "vad-dataplane: %s\n", voice::config::text_of(problem).c_str());
        }
        return kRefused;
    }
    try {
        return run(std::get<voice::config::Config>(loaded));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "vad-dataplane: %s\n", error.what());
        return kFailed;
    }
}
