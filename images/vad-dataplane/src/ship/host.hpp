// An ASR host in the state store's registry.
//
// Set `host:asr`: the ids of the hosts, so that a reader need not scan the whole store. Hash `host:asr:<id>`:
//
//   kind        `neuron`, `gpu` or `cpu`
//   address     IPv4 address that takes AudioChunks
//   zone        availability zone; may be missing
//   free_slots  sessions that it can still take
//   draining    `1`: no new sessions; `0` otherwise
//   heartbeat   a number that changes every second; hosts whose number stands still are taken for dead
//
// A host writes all of it with every heartbeat, and lets the hash expire.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "valkey/client.hpp"

namespace voice::ship {

inline constexpr std::string_view kHostsKey = "host:asr";
inline constexpr std::string_view kHostKeyPrefix = "host:asr:";
inline constexpr std::string_view kKind = "kind";
inline constexpr std::string_view kKindNeuron = "neuron";
inline constexpr std::string_view kKindGpu = "gpu";
inline constexpr std::string_view kKindCpu = "cpu";
inline constexpr std::string_view kAddress = "address";
inline constexpr std::string_view kZone = "zone";
inline constexpr std::string_view kFreeSlots = "free_slots";
inline constexpr std::string_view kDraining = "draining";
inline constexpr std::string_view kHeartbeat = "heartbeat";

enum class HostKind : std::uint8_t { kNeuron, kGpu, kCpu };  // in the order of preference

struct Host {
    std::string id;
    HostKind kind = HostKind::kGpu;
    sockaddr_in address{};
    std::string zone;  // empty if not recorded
    std::uint32_t free_slots = 0;
    bool draining = false;
    std::string heartbeat;
};

using Hosts = std::shared_ptr<const std::vector<Host>>;

// The shipper's source of hosts.
class HostSource {
public:
    virtual ~HostSource() = default;
    // The live hosts; null if they have not been read since the last call. For one thread; takes no lock.
    [[nodiscard]] virtual Hosts take() noexcept = 0;
};

// Nothing if a field is missing or invalid: such a host gets no audio.
std::optional<Host> read_host(std::string_view id, const valkey::Fields& fields, std::uint16_t port);

}  // namespace voice::ship
