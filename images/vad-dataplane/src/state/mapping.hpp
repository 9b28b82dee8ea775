// Memory-mapped file of a session table, validated when it is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "state/layout.hpp"

namespace voice::state {

// A table of another version or size, without a writer.
struct OtherShape : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Owns the mapping and the file's descriptor. All errors are std::runtime_error with the file, the problem and the
// remedy.
class Mapping {
public:
    // For the writer. Creates the file if necessary, and holds a lock on it, which the kernel releases when the process
    // ends. An existing table is kept, with its sessions.
    static Mapping open_to_write(const std::string& path, std::uint32_t sessions);

    // For readers; the writer must have created the file.
    static Mapping open_to_read(const std::string& path);

    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&& other) = delete;
    ~Mapping();

    [[nodiscard]] const Header& header() const noexcept { return *static_cast<const Header*>(base_); }
    [[nodiscard]] Control& control() const noexcept;
    [[nodiscard]] std::span<Entry> entries() const noexcept;

private:
    Mapping(int file, void* base, std::size_t bytes) noexcept : file_(file), base_(base), bytes_(bytes) {}

    int file_;
    void* base_;
    std::size_t bytes_;
};

}  // namespace voice::state
