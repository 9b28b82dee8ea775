#include "ship/refusals.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace {

TEST(Refusals, EndWhereASocketHasNoErrorQueue) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    close(ends[1]);  // from now on each call to receive returns nothing, and succeeds
    EXPECT_EQ(voice::ship::take_refusals(ends[0], [](const sockaddr_in&) { FAIL() << "nobody refused anything"; }), 0U);
    close(ends[0]);
}

}  // namespace
