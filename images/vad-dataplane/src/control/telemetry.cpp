#include "control/telemetry.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace voice::control {
namespace {

using nlohmann::json;

double percent(std::uint64_t part, std::uint64_t whole) noexcept {
    return whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string_view name_of(State state) noexcept {
    constexpr std::array<std::string_view, 4> kNames{"starting", "ready", "stalled", "draining"};
    return kNames[static_cast<std::size_t>(state)];
}

}  // namespace

json to_json(const Status& status) {
    return {
        {"state", name_of(status.state)},
        {"host", status.host},
        {"data_path", status.data_path},
        {"interface", status.interface},
        {"vad_module", status.vad_module},
        {"sessions", status.sessions},
        {"uptime_s", status.uptime.count()},
    };
}

json to_json(const Telemetry& telemetry) {
    json queues = json::array();
    double fullest = 0;
    for (std::size_t i = 0; i < telemetry.queues.size(); ++i) {
        const auto& queue = telemetry.queues[i];
        const auto rx = percent(queue.rx_used, queue.rx_size);
        fullest = std::max(fullest, rx);
        queues.push_back({{"queue", i},
                          {"rx_ring_percent", rx},
                          {"chunk_ring_percent", percent(queue.chunks_used, queue.chunks_size)}});
    }
    json drops = json::object();
    for (std::size_t i = 0; i < telemetry.drops.size(); ++i) {
        drops[std::string(kDropReasonNames[i])] = telemetry.drops[i];
    }
    json stages = json::object();
    for (const auto& stage : telemetry.stages) {
        const auto each = stage.items == 0 ? 0.0 : static_cast<double>(stage.cycles) / static_cast<double>(stage.items);
        stages[stage.name] = {{"cycles", stage.cycles}, {"items", stage.items}, {"cycles_per_item", each}};
    }
    json document{
        {"sessions", telemetry.sessions},
        {"max_sessions", telemetry.max_sessions},
        {"asr_hosts", telemetry.asr_hosts},
        {"rx_ring_percent", fullest},
        {"queues", std::move(queues)},
        {"drops", std::move(drops)},
        {"vad", {{"frames", telemetry.vad_frames},
                 {"silent_frames", telemetry.vad_silent_frames},
                 {"stopped", telemetry.vad_stopped},
                 {"silence_percent", percent(telemetry.vad_silent_frames, telemetry.vad_frames)}}},
        {"stages", std::move(stages)},
    };
    json& events = document["events"] = json::object();
    for (const auto& [name, group] : telemetry.groups) {
        events[name] = json(std::map(group.begin(), group.end()));
    }
    return document;
}

json to_json(const Session& session) {
    return {
        {"ssrc", session.ssrc},           {"encrypted", session.encrypted}, {"packets", session.packets},
        {"concealed", session.concealed}, {"wrong_payload", session.wrong_payload}, {"chunks", session.chunks},       {"speaking", session.speaking},
    };
}

}  // namespace voice::control
