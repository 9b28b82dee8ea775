// A state store for a test: redis-server or valkey-server on a loopback port and in a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/descriptor.hpp"
#include "support/eventually.hpp"
#include "valkey/client.hpp"

namespace voice::test {

// A folder that is removed after the test.
class Folder {
public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "voice-XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }

    [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(path_ + "/" + name) << text;
        return path_ + "/" + name;
    }

private:
    std::string path_;
};

// An unused port.
inline std::uint16_t free_port(int type = SOCK_STREAM) {
    const Descriptor socket(::socket(AF_INET, type, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    return ntohs(address.sin_port);
}

class Store {
public:
    explicit Store(std::vector<std::string> arguments = {}, bool tls = false)
        : port_(free_port()), tls_(tls), arguments_(std::move(arguments)) {
        start();
    }
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    ~Store() { stop(); }

    void start() {
        const auto port = std::to_string(port_);
        std::vector<std::string> words{"redis-server", "--port", tls_ ? "0" : port, "--bind", "127.0.0.1", "--save", "",
                                       "--appendonly", "no", "--dir", folder_ / "", "--logfile", folder_ / "log"};
        if (tls_) {
            words.insert(words.end(), {"--tls-port", port, "--tls-auth-clients", "no"});
        }
        words.insert(words.end(), arguments_.begin(), arguments_.end());
        if (std::filesystem::exists("/usr/bin/valkey-server")) {
            words.front() = "valkey-server";
        }
        process_ = spawn(words);
        ASSERT_TRUE(eventually([&] { return answers(); })) << "redis-server does not start";
    }

    void stop() {
        if (process_ > 0) {
            kill(process_, SIGKILL);
            waitpid(process_, nullptr, 0);
            process_ = -1;
        }
    }

    // Pauses it: connections stay, and nothing answers.
    void freeze() const { kill(process_, SIGSTOP); }
    void thaw() const { kill(process_, SIGCONT); }

    [[nodiscard]] valkey::Endpoint endpoint() const {
        valkey::Endpoint endpoint;
        endpoint.host = "127.0.0.1";
        endpoint.port = port_;
        endpoint.tls = false;
        return endpoint;
    }

    void run(std::initializer_list<std::string_view> command) const {
        valkey::Client client(endpoint());
        client.append(command);
        const auto replies = client.exchange();
        ASSERT_TRUE(replies) << client.error();
        const auto& reply = *replies->front();
        ASSERT_NE(reply.type, REDIS_REPLY_ERROR) << reply.str;
    }

private:
    static pid_t spawn(std::vector<std::string>& words) {
        std::vector<char*> raw;
        for (auto& word : words) {
            raw.push_back(word.data());
        }
        raw.push_back(nullptr);
        const pid_t process = fork();
        if (process == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);  // a killed test leaves nothing behind
            execvp(raw.front(), raw.data());
            _exit(127);
        }
        return process;
    }

    [[nodiscard]] bool answers() const {
        const Descriptor probe(socket(AF_INET, SOCK_STREAM, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port_);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    }

    Folder folder_;
    std::uint16_t port_;
    bool tls_;
    std::vector<std::string> arguments_;
    pid_t process_ = -1;
};

// Adds the VAD tier's user with the contract's permissions (voice_blueprint/contract/state.py, STATE_USERS).
inline void add_vad_user(const Store& store) {
    store.run({"ACL", "SETUSER", "vad", "on", ">secret", "resetkeys", "%R~session:[0-9]*",
               "%R~srtp:[0-9]*", "~shipped:[0-9]*", "~host:vad*", "~host:asr",
               "%R~host:asr:*", "resetchannels", "-@all", "+@connection", "+@read", "+@write", "+@stream", "+@hash",
               "+@keyspace", "+@transaction", "-@dangerous", "-scan", "-randomkey"});
}

inline valkey::Endpoint vad_endpoint(const Store& store, const Folder& folder) {
    auto endpoint = store.endpoint();
    endpoint.user = "vad";
    endpoint.password_file = folder.write("password", "secret\n");
    return endpoint;
}

}  // namespace voice::test
