#include "ship/host.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace voice::ship {

std::optional<Host> read_host(std::string_view id, const valkey::Fields& fields, std::uint16_t port) {
    Host host;
    host.id = id;
    constexpr std::array kKinds{kKindNeuron, kKindGpu, kKindCpu};  // in the order of HostKind
    const auto* const kind = std::ranges::find(kKinds, valkey::value_of(fields, kKind));
    if (kind == kKinds.end()) {
        return std::nullopt;
    }
    host.kind = static_cast<HostKind>(kind - kKinds.begin());
    host.address.sin_family = AF_INET;
    host.address.sin_port = htons(port);
    const std::string address(valkey::value_of(fields, kAddress));
    if (inet_pton(AF_INET, address.c_str(), &host.address.sin_addr) != 1) {
        return std::nullopt;
    }
    host.zone = valkey::value_of(fields, kZone);
    const auto slots = valkey::value_of(fields, kFreeSlots);
    const auto [end, error] = std::from_chars(slots.data(), slots.data() + slots.size(), host.free_slots);
    if (error != std::errc{} || end != slots.data() + slots.size()) {
        return std::nullopt;
    }
    const auto draining = valkey::value_of(fields, kDraining);
    if (draining != "0" && draining != "1") {
        return std::nullopt;
    }
    host.draining = draining == "1";
    host.heartbeat = valkey::value_of(fields, kHeartbeat);
    return host.heartbeat.empty() ? std::nullopt : std::optional(host);
}

}  // namespace voice::ship
