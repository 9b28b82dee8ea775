#include "support/huge_pages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct alignas(64) Made : voice::OnHugePages {
    std::array<std::byte, 3 << 20> bytes;
};

// The kernel's flags of the mapping that holds an address (proc_pid_smaps(5)).
std::string flags_of(const void* at) {
    std::ifstream maps("/proc/self/smaps");
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t from = 0;
        std::uintptr_t to = 0;
        char dash = 0;
        if (std::istringstream(line) >> std::hex >> from >> dash >> to && dash == '-') {
            here = from <= reinterpret_cast<std::uintptr_t>(at) && reinterpret_cast<std::uintptr_t>(at) < to;
        } else if (here && line.starts_with("VmFlags:")) {
            return line + " ";
        }
    }
    return "";
}

bool is_huge(const void* at) {
    const std::string flags = flags_of(at);
    return flags.find(" ht ") != std::string::npos || flags.find(" hg ") != std::string::npos;
}

TEST(HugePages, HoldWhatIsMadeThere) {
    const auto made = std::make_unique<Made>();
    EXPECT_TRUE(is_huge(made.get())) << flags_of(made.get());
    EXPECT_TRUE(is_huge(&made->bytes.back()));
    EXPECT_TRUE(std::ranges::all_of(made->bytes, [](std::byte each) { return each == std::byte{0}; }));
    made->bytes.back() = std::byte{1};
}

TEST(HugePages, HoldVectorsAndAreGivenBack) {
    const void* first = nullptr;
    {
        std::vector<Made, voice::HugeAllocator<Made>> made(3);
        first = &made[0];
        EXPECT_TRUE(is_huge(&made[2]));
        made[2].bytes.back() = std::byte{1};
    }
    EXPECT_FALSE(is_huge(first)) << flags_of(first);
}

}  // namespace
