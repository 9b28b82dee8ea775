// libFuzzer: any stored session or host is either refused or usable.
#include <cstdint>
#include <cstdlib>

#include "admission/session_record.hpp"
#include "media/decoder.hpp"
#include "ship/host.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace voice;
    // One value per line, in this order.
    std::string_view left(reinterpret_cast<const char*>(data), size);
    valkey::Fields fields{{"state", "open"}};
    for (const auto name : {"kind", "media", "expires_at", "gateway", "srtp_key", "chunks", "seen_at", "begins_at",
                            "address", "free_slots", "draining", "heartbeat"}) {
        const auto end = left.find('\n');
        fields.emplace_back(name, left.substr(0, end));
        left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    }
    const auto found = admission::read_session(fields, 0);
    if (const auto* record = std::get_if<admission::SessionRecord>(&found);
        record != nullptr && !record->media.is_plain() && !media::Decoder::create(record->media)) {
        std::abort();
    }
    static_cast<void>(ship::read_host("asr-1", fields, 5006));
    return 0;
}
