// A separate file: where the compiler sees both sides of a replaced operator, it reports a mismatch.
#include "allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> count{0};

}  // namespace

std::size_t allocations() noexcept { return count.load(std::memory_order_relaxed); }

void* operator new(std::size_t bytes) {
    count.fetch_add(1, std::memory_order_relaxed);
    if (void* memory = std::malloc(bytes)) {
        return memory;
    }
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
