#include "srtp/crypto_pool.hpp"

#include <openssl/crypto.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace voice::srtp {
namespace {

thread_local CryptoPool* pool_of_thread = nullptr;

// In front of every block, since free() has to know its size.
struct alignas(std::max_align_t) Header {
    std::size_t bytes;
};

// Rounded up, so that every block of a class fits every request of it.
std::size_t class_of(std::size_t bytes) noexcept { return bytes == 0 ? 0 : (bytes - 1) / CryptoPool::kClassBytes; }

void* allocate(std::size_t bytes, const char* /*file*/, int /*line*/) {
    const auto size_class = class_of(bytes);
    void* block = pool_of_thread != nullptr ? pool_of_thread->take(size_class) : nullptr;
    if (block == nullptr) {
        block = std::malloc(sizeof(Header) + (size_class + 1) * CryptoPool::kClassBytes);
    }
    if (block == nullptr) {
        return nullptr;
    }
    auto* header = static_cast<Header*>(block);
    header->bytes = bytes;
    return header + 1;
}

void release(void* address, const char* /*file*/, int /*line*/) {
    if (address == nullptr) {
        return;
    }
    auto* header = static_cast<Header*>(address) - 1;
    if (pool_of_thread == nullptr || !pool_of_thread->keep(class_of(header->bytes), header)) {
        std::free(header);
    }
}

void* reallocate(void* address, std::size_t bytes, const char* file, int line) {
    if (address == nullptr) {
        return allocate(bytes, file, line);
    }
    if (bytes == 0) {
        release(address, file, line);
        return nullptr;
    }
    void* larger = allocate(bytes, file, line);
    if (larger != nullptr) {
        std::memcpy(larger, address, std::min(bytes, (static_cast<Header*>(address) - 1)->bytes));
        release(address, file, line);
    }
    return larger;
}

}  // namespace

bool CryptoPool::install() noexcept { return CRYPTO_set_mem_functions(allocate, reallocate, release) == 1; }

CryptoPool::CryptoPool() noexcept { pool_of_thread = this; }

CryptoPool::~CryptoPool() {
    pool_of_thread = nullptr;
    for (auto& each : classes_) {
        std::for_each_n(each.blocks.begin(), each.count, std::free);
    }
}

void* CryptoPool::take(std::size_t size_class) noexcept {
    if (size_class >= kClasses || classes_[size_class].count == 0) {
        return nullptr;
    }
    auto& found = classes_[size_class];
    return found.blocks[--found.count];
}

bool CryptoPool::keep(std::size_t size_class, void* block) noexcept {
    if (size_class >= kClasses || classes_[size_class].count == kKept) {
        return false;
    }
    auto& found = classes_[size_class];
    found.blocks[found.count++] = block;
    return true;
}

}  // namespace voice::srtp
