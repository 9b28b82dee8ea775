// The session table of one receive queue, in a file that is there while the program runs. What a killed program left
// is taken over, so that readers keep their mapping; where its shape is another version's or size's, it is made anew.
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
