// A file of its own: inlined into its callers, these make compilers see mismatched pairs.
#include "allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> count{0};

}  // namespace

std::size_t allocations() noexcept { return count.load(); }

void* operator new(std::size_t bytes) {
    ++count;
    if (void* memory = std::malloc(bytes)) {
        return memory;
    }
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
