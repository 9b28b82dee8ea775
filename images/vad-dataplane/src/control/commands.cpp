#include "control/commands.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

namespace voice::control {
namespace {

using nlohmann::json;

// Reported to the client.
class BadRequest : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

json parse(std::string_view text) {
    if (text.size() > kLongestRequest) {
        throw BadRequest("a request has " + std::to_string(kLongestRequest) + " bytes at most");
    }
    auto request = json::parse(text, nullptr, false);
    // The library takes a zero byte for the end.
    if (!request.is_object() || text.find('\0') != std::string_view::npos) {
        throw BadRequest("a request is one JSON object");
    }
    return request;
}

std::string take_text(json& request, const char* name) {
    const auto found = request.find(name);
    if (found == request.end() || !found->is_string()) {
        throw BadRequest(std::string(name) + " has to be a string");
    }
    auto text = found->get<std::string>();
    request.erase(found);
    return text;
}

std::size_t take_number(json& request, const char* name, std::size_t fallback, std::size_t most) {
    const auto found = request.find(name);
    if (found == request.end()) {
        return fallback;
    }
    if (!found->is_number_unsigned() || found->get<std::uint64_t>() > most) {
        throw BadRequest(std::string(name) + " has to be a whole number from 0 to " + std::to_string(most));
    }
    const auto number = found->get<std::size_t>();
    request.erase(found);
    return number;
}

// A misspelt member must not pass as a missing one.
void refuse_more(const json& request) {
    if (!request.empty()) {
        const json name = request.begin().key();
        throw BadRequest("unknown member " + name.dump(-1, ' ', true, json::error_handler_t::replace));
    }
}

json sessions(json& request, DataPlane& data_plane) {
    const auto first = take_number(request, "first", 0, UINT32_MAX);
    const auto limit = take_number(request, "limit", 100, kMostSessions);
    refuse_more(request);
    json list = json::array();
    for (const auto& session : data_plane.sessions(first, limit)) {
        list.push_back(to_json(session));
    }
    return list;
}

json swap_vad(json& request, DataPlane& data_plane) {
    const auto module = take_text(request, "module");
    refuse_more(request);
    if (module.empty() || module.front() != '/' || module.find('\0') != std::string::npos) {
        throw BadRequest("module has to be an absolute path");
    }
    const auto error = data_plane.swap_vad(module);
    if (!error.empty()) {
        throw BadRequest(error);
    }
    return to_json(data_plane.status());
}

json run(json& request, Rights rights, DataPlane& data_plane, bool& drain) {
    const auto command = take_text(request, "command");
    if (rights != Rights::kChange && (command == "drain" || command == "swap-vad")) {
        throw BadRequest(command + " is for the user that the program runs as; others may ask for status, counters, sessions");
    }
    if (command == "sessions") {
        return sessions(request, data_plane);
    }
    if (command == "swap-vad") {
        return swap_vad(request, data_plane);
    }
    refuse_more(request);
    if (command == "status") {
        return to_json(data_plane.status());
    }
    if (command == "counters") {
        return to_json(data_plane.telemetry());
    }
    if (command == "drain") {
        drain = true;
        return nullptr;
    }
    throw BadRequest("unknown command; there are status, counters, sessions, drain, swap-vad");
}

// External text, such as a path, need not be UTF-8.
std::string line(const json& document) { return document.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace

Answer answer(std::string_view request, Rights rights, DataPlane& data_plane) {
    try {
        auto document = parse(request);
        bool drain = false;
        const auto result = run(document, rights, data_plane, drain);
        return {line({{"ok", true}, {"result", result}}), drain};
    } catch (const BadRequest& error) {
        return {line({{"ok", false}, {"error", error.what()}})};
    }
}

}  // namespace voice::control
