// Memory that packets access randomly: on huge pages, which avoids page-table walks.
#pragma once

#include <cstddef>
#include <new>

namespace voice {

// Zeroed and populated, so that no thread faults on first access. Uses the host's reserved huge pages while there are
// any, then the kernel's transparent ones (madvise). Null if there is no memory.
[[nodiscard]] void* map_huge(std::size_t bytes) noexcept;
void unmap_huge(void* at, std::size_t bytes) noexcept;

// Types derived from it are allocated there by `new`.
struct OnHugePages {
    static void* operator new(std::size_t bytes, std::align_val_t) {
        void* at = map_huge(bytes);
        return at != nullptr ? at : throw std::bad_alloc();
    }
    static void operator delete(void* at, std::size_t bytes, std::align_val_t) noexcept { unmap_huge(at, bytes); }
};

// Allocator for vectors whose elements are there.
template <typename T>
struct HugeAllocator {
    using value_type = T;

    T* allocate(std::size_t count) {
        void* at = map_huge(count * sizeof(T));
        return at != nullptr ? static_cast<T*>(at) : throw std::bad_alloc();
    }
    void deallocate(T* at, std::size_t count) noexcept { unmap_huge(at, count * sizeof(T)); }
    bool operator==(const HugeAllocator&) const noexcept = default;
};

}  // namespace voice
