#include "receive/socket_queue.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <string>
#include <system_error>

namespace {

using voice::receive::SocketQueue;

class Sender {
public:
    explicit Sender(std::uint16_t port) : socket_(socket(AF_INET, SOCK_DGRAM, 0)) {
        to_.sin_family = AF_INET;
        to_.sin_port = htons(port);
        to_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    ~Sender() { close(socket_); }
    void send(const std::string& text) const {
        ASSERT_EQ(sendto(socket_, text.data(), text.size(), 0, reinterpret_cast<const sockaddr*>(&to_), sizeof to_),
                  static_cast<ssize_t>(text.size()));
    }

private:
    int socket_;
    sockaddr_in to_{};
};

std::vector<std::string> poll(SocketQueue& queue) {
    std::vector<std::string> texts;
    queue.poll([&](std::span<const voice::receive::Datagram> burst) {
        for (const auto& each : burst) {
            texts.emplace_back(each.bytes.begin(), each.bytes.end());
        }
    });
    return texts;
}

TEST(SocketQueue, ReadsABatchAndNeverWaits) {
    SocketQueue queue("127.0.0.1", 0);
    EXPECT_TRUE(poll(queue).empty());
    const Sender sender(queue.port());
    for (std::size_t i = 0; i < SocketQueue::kBatch + 1; ++i) {
        sender.send(std::to_string(i));
    }
    EXPECT_EQ(poll(queue).size(), SocketQueue::kBatch);
    EXPECT_EQ(poll(queue), std::vector<std::string>{std::to_string(SocketQueue::kBatch)});
    EXPECT_TRUE(poll(queue).empty());
}

TEST(SocketQueue, DropsWhatDoesNotFitInsteadOfCuttingIt) {
    SocketQueue queue("127.0.0.1", 0);
    const Sender sender(queue.port());
    sender.send(std::string(voice::receive::kDatagramBytes + 1, 'x'));
    sender.send("whole");
    EXPECT_EQ(poll(queue), std::vector<std::string>{"whole"});
}

TEST(SocketQueue, SharesItsPortWithItsSiblings) {
    SocketQueue first("127.0.0.1", 0);
    EXPECT_NO_THROW(SocketQueue("127.0.0.1", first.port()));
}

TEST(SocketQueue, SaysWhatItCannotListenOn) {
    EXPECT_THROW(SocketQueue("not an address", 0), std::system_error);
    EXPECT_THROW(SocketQueue("192.0.2.1", 0), std::system_error);
}

}  // namespace
