// Counts what a test program allocates with operator new: link allocations.cpp in.
#pragma once

#include <cstddef>

// Calls of operator new so far, on all threads.
std::size_t allocations() noexcept;
