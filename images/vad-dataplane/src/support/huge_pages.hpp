// Memory that every packet touches somewhere: on huge pages, so that finding it takes no walk through page tables.
#pragma once

#include <cstddef>
#include <new>

namespace voice {

// Zeroed, and there already: no thread meets a page for the first time. Of the huge pages that the host has reserved, as
// long as there are any; then of those that the kernel finds (madvise). Null when there is no memory.
[[nodiscard]] void* map_huge(std::size_t bytes) noexcept;
void unmap_huge(void* at, std::size_t bytes) noexcept;

// What is made with `new` of such a type lies there.
struct OnHugePages {
    static void* operator new(std::size_t bytes, std::align_val_t) {
        void* at = map_huge(bytes);
        return at != nullptr ? at : throw std::bad_alloc();
    }
    static void operator delete(void* at, std::size_t bytes, std::align_val_t) noexcept { unmap_huge(at, bytes); }
};

// Of a vector whose elements lie there.
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
