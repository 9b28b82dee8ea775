#include "support/huge_pages.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace voice {
namespace {

constexpr std::size_t kUsualBytes = std::size_t{2} << 20;

std::size_t default_page_bytes() {
    std::ifstream file("/proc/meminfo");
    std::size_t kib = 0;
    for (std::string word; file >> word;) {
        if (word == "Hugepagesize:" && file >> kib) {
            return kib << 10;
        }
    }
    return kUsualBytes;  // a kernel without a pool of huge pages
}

std::size_t rounded(std::size_t bytes) noexcept {
    static const std::size_t page = default_page_bytes();
    return (bytes + page - 1) / page * page;
}

void* map(std::size_t bytes, int more_flags) noexcept {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

void* map_huge(std::size_t bytes) noexcept {
    const std::size_t whole = rounded(bytes);
    if (void* reserved = map(whole, MAP_HUGETLB | MAP_POPULATE)) {
        return reserved;
    }
    // The kernel's transparent huge pages start at multiples of their size.
    auto* const around = static_cast<std::byte*>(map(whole + kUsualBytes, 0));
    if (around == nullptr) {
        return nullptr;
    }
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(around) % kUsualBytes;
    std::byte* const at = around + before;
    if (before > 0) {
        munmap(around, before);
    }
    munmap(at + whole, kUsualBytes - before);
    madvise(at, bytes, MADV_HUGEPAGE);
    madvise(at, bytes, MADV_POPULATE_WRITE);
    return at;
}

void unmap_huge(void* at, std::size_t bytes) noexcept {
    munmap(at, rounded(bytes));
}

}  // namespace voice
