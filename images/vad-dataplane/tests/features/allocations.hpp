// Counts a test program's allocations with operator new: link with allocations.cpp.
#pragma once

#include <cstddef>

// Calls of operator new so far, on all threads.
std::size_t allocations() noexcept;
