// Keeps libcrypto off the heap on threads that must not allocate. OpenSSL 3.0 copies the state of its digest, two small
// blocks on the heap, for every HMAC, so for every SRTP packet.
#pragma once

#include <array>
#include <cstddef>

namespace voice::srtp {

// While one lives on a thread, blocks that libcrypto frees there are kept for its next allocation.
class CryptoPool {
public:
    // To be called in main() before anything uses libcrypto; false when something has.
    static bool install() noexcept;

    CryptoPool() noexcept;
    CryptoPool(const CryptoPool&) = delete;
    CryptoPool& operator=(const CryptoPool&) = delete;
    ~CryptoPool();

    // A block of the size class, or null.
    void* take(std::size_t size_class) noexcept;
    // False: the pool has enough of them.
    bool keep(std::size_t size_class, void* block) noexcept;

    static constexpr std::size_t kClassBytes = 64;
    static constexpr std::size_t kClasses = 16;  // up to 1024 bytes; larger ones are made at set-up
    static constexpr std::size_t kKept = 16;     // of each class

private:
    struct Class {
        std::array<void*, kKept> blocks{};
        std::size_t count = 0;
    };
    std::array<Class, kClasses> classes_{};
};

}  // namespace voice::srtp
