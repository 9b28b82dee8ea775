#include "state/mapping.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace voice::state {
namespace {

constexpr mode_t kMode = 0640;
constexpr std::uint32_t kMaxSessions = 1U << 24U;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
    throw std::runtime_error("session table " + path + ": " + reason);
}

[[noreturn]] void refuse_errno(const std::string& path, const std::string& what) {
    refuse(path, what + ": " + std::strerror(errno));
}

// Closes the file unless it is released: half of the steps that open a table can fail afterwards.
class File {
public:
    explicit File(int number) noexcept : number_(number) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (number_ >= 0) {
            close(number_);
        }
    }
    [[nodiscard]] int number() const noexcept { return number_; }
    [[nodiscard]] int hand_on() noexcept { return std::exchange(number_, -1); }

private:
    int number_;
};

std::size_t bytes_of(std::size_t slots) { return sizeof(Header) + sizeof(Control) + slots * sizeof(Entry); }

std::size_t size_of(int file, const std::string& path) {
    struct stat status {};
    if (fstat(file, &status) != 0) {
        refuse_errno(path, "cannot tell its size");
    }
    return static_cast<std::size_t>(status.st_size);
}

[[noreturn]] void refuse_shape(const std::string& path, const char* what, std::uint64_t found, std::uint64_t wanted) {
    throw OtherShape("session table " + path + ": " + what + " is " + std::to_string(found) + ", this program needs " +
                     std::to_string(wanted) + "; stop its writer and remove the file");
}

// Reads with pread(): accessing a mapping of a truncated file would kill the process.
Header checked_header(int file, const std::string& path) {
    Header header{};
    if (pread(file, &header, sizeof header, 0) != sizeof header || header.magic != kMagic) {
        refuse(path, "is no session table");
    }
    if (header.version != kVersion) {
        refuse_shape(path, "its version", header.version, kVersion);
    }
    if (header.value_bytes != kValueBytes) {
        refuse_shape(path, "its value size", header.value_bytes, kValueBytes);
    }
    if (header.entry_bytes != sizeof(Entry)) {
        refuse_shape(path, "its entry size", header.entry_bytes, sizeof(Entry));
    }
    if (!std::has_single_bit(header.slots) || header.sessions > header.slots / 2) {
        refuse(path, std::to_string(header.slots) + " slots cannot hold " + std::to_string(header.sessions) +
                         " sessions; stop its writer and remove the file");
    }
    const std::size_t size = size_of(file, path);
    if (size != bytes_of(header.slots)) {
        refuse_shape(path, "its size", size, bytes_of(header.slots));
    }
    return header;
}

void write_header(int file, const std::string& path, std::uint32_t sessions) {
    Header header{};
    header.magic = kMagic;
    header.version = kVersion;
    header.value_bytes = kValueBytes;
    header.entry_bytes = sizeof(Entry);
    header.slots = std::bit_ceil(2 * sessions);
    header.sessions = sessions;
    // Space first, header last: a reader in between finds no table rather than a partial one.
    if (const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes_of(header.slots))); error != 0) {
        errno = error;
        refuse_errno(path, "cannot take " + std::to_string(bytes_of(header.slots)) + " bytes");
    }
    if (pwrite(file, &header, sizeof header, 0) != sizeof header) {
        refuse_errno(path, "cannot write its header");
    }
}

void* map(int file, std::size_t bytes, int protection, const std::string& path) {
    void* base = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_POPULATE, file, 0);
    if (base == MAP_FAILED) {
        refuse_errno(path, "cannot map it");
    }
    return base;
}

}  // namespace

Mapping Mapping::open_to_write(const std::string& path, std::uint32_t sessions) {
    if (sessions == 0 || sessions > kMaxSessions) {
        refuse(path, std::to_string(sessions) + " sessions: 1 to " + std::to_string(kMaxSessions) + " are possible");
    }
    File file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (file.number() < 0) {
        refuse_errno(path, "cannot open it to write");
    }
    if (flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
        refuse(path, "has a writer already; a table has one");
    }
    // No magic in an otherwise empty header: its writer ended before it wrote the header.
    std::uint64_t magic = 0;
    if (pread(file.number(), &magic, sizeof magic, 0) <= 0 || magic == 0) {
        write_header(file.number(), path, sessions);
    }
    const Header header = checked_header(file.number(), path);
    if (header.sessions != sessions) {
        refuse_shape(path, "its number of sessions", header.sessions, sessions);
    }
    const std::size_t bytes = bytes_of(header.slots);
    void* base = map(file.number(), bytes, PROT_READ | PROT_WRITE, path);
    return {file.hand_on(), base, bytes};
}

Mapping Mapping::open_to_read(const std::string& path) {
    File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (file.number() < 0) {
        refuse_errno(path, "cannot open it to read");
    }
    const std::size_t bytes = bytes_of(checked_header(file.number(), path).slots);
    void* base = map(file.number(), bytes, PROT_READ, path);
    return {file.hand_on(), base, bytes};
}

Mapping::Mapping(Mapping&& other) noexcept
    : file_(std::exchange(other.file_, -1)), base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}

Mapping::~Mapping() {
    if (base_ != nullptr) {
        munmap(base_, bytes_);
        close(file_);
    }
}

Control& Mapping::control() const noexcept {
    return *reinterpret_cast<Control*>(static_cast<std::byte*>(base_) + sizeof(Header));
}

std::span<Entry> Mapping::entries() const noexcept {
    return {reinterpret_cast<Entry*>(static_cast<std::byte*>(base_) + sizeof(Header) + sizeof(Control)),
            header().slots};
}

}  // namespace voice::state
