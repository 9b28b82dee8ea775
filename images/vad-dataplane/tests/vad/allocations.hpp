// How often operator new was called.
#pragma once

#include <cstddef>

std::size_t allocations() noexcept;
