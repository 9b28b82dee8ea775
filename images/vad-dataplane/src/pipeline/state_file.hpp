// The session table of one receive queue, in a file that exists while the program runs. The file of a killed program is
// reused, so that readers keep their mapping; if its layout has another version or size, it is recreated.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "state/session_table.hpp"

namespace voice::pipeline {

class StateFile {
public:
    StateFile(std::string path, std::uint32_t sessions) : path_(std::move(path)) {
        try {
            table_ = std::make_unique<state::SessionTable>(path_, sessions);
        } catch (const state::OtherShape&) {
            unlink(path_.c_str());
            table_ = std::make_unique<state::SessionTable>(path_, sessions);
        }
    }
    StateFile(const StateFile&) = delete;
    StateFile& operator=(const StateFile&) = delete;
    ~StateFile() { unlink(path_.c_str()); }

    [[nodiscard]] state::SessionTable& table() noexcept { return *table_; }

private:
    std::string path_;
    std::unique_ptr<state::SessionTable> table_;
};

}  // namespace voice::pipeline
