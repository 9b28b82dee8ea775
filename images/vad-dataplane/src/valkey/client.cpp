#include "valkey/client.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <new>
#include <span>

namespace voice::valkey {
namespace {

std::string format(std::span<const std::string_view> words) {
    std::vector<const char*> texts;
    std::vector<std::size_t> lengths;
    for (const auto word : words) {
        texts.push_back(word.data());
        lengths.push_back(word.size());
    }
    char* command = nullptr;
    const auto bytes = redisFormatCommandArgv(&command, static_cast<int>(texts.size()), texts.data(), lengths.data());
    if (bytes < 0) {
        throw std::bad_alloc();
    }
    std::string text(command, static_cast<std::size_t>(bytes));
    redisFreeCommand(command);
    return text;
}

std::optional<std::string> first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line)) {
        return std::nullopt;
    }
    return line;
}

}  // namespace

Fields fields_of(const redisReply& reply) {
    Fields fields;
    if (reply.type != REDIS_REPLY_ARRAY) {
        return fields;
    }
    for (std::size_t i = 0; i + 1 < reply.elements; i += 2) {
        const auto& name = *reply.element[i];
        const auto& value = *reply.element[i + 1];
        if (name.type == REDIS_REPLY_STRING && value.type == REDIS_REPLY_STRING) {
            fields.emplace_back(std::string_view(name.str, name.len), std::string_view(value.str, value.len));
        }
    }
    return fields;
}

std::string_view value_of(const Fields& fields, std::string_view name) {
    const auto is_it = [&](const auto& field) { return field.first == name; };
    const auto found = std::find_if(fields.begin(), fields.end(), is_it);
    return found == fields.end() ? std::string_view{} : found->second;
}

void Client::append(std::initializer_list<std::string_view> words) {
    pending_ += format({words.begin(), words.size()});
    ++commands_;
}

void Client::append(const std::vector<std::string>& words) {
    pending_ += format(std::vector<std::string_view>(words.begin(), words.end()));
    ++commands_;
}

std::optional<std::vector<Reply>> Client::exchange() {
    const std::string commands = std::exchange(pending_, {});
    const std::size_t expected = std::exchange(commands_, 0);
    if (!is_connected()) {
        return std::nullopt;
    }
    if (!link_->send(commands)) {
        fail("sending failed");
        return std::nullopt;
    }
    std::vector<Reply> replies;
    while (replies.size() < expected) {
        auto reply = receive();
        if (!reply) {
            return std::nullopt;
        }
        replies.push_back(std::move(reply));
    }
    return replies;
}

bool Client::is_connected() {
    if (link_) {
        return true;
    }
    if (Clock::now() < next_try_) {
        return false;
    }
    if (!endpoint_.host_file.empty()) {
        auto host = first_line(endpoint_.host_file);
        if (!host) {
            fail(endpoint_.host_file + " has no host");
            return false;
        }
        endpoint_.host = std::move(*host);
    }
    std::string why;
    link_ = connect(endpoint_, why);
    if (!link_) {
        fail(endpoint_.host + ": " + why);
        return false;
    }
    reader_.reset(redisReaderCreate());
    if (!log_in()) {
        return false;
    }
    back_off_ = {};
    counters_.connects.fetch_add(1, std::memory_order_relaxed);
    counters_.connected.store(true, std::memory_order_relaxed);
    return true;
}

bool Client::log_in() {
    std::vector<std::string> commands;
    if (!endpoint_.password_file.empty()) {
        const auto password = first_line(endpoint_.password_file);
        if (!password) {
            fail(endpoint_.password_file + " has no password");
            return false;
        }
        commands.push_back(endpoint_.user.empty()
                               ? format(std::array<std::string_view, 2>{"AUTH", *password})
                               : format(std::array<std::string_view, 3>{"AUTH", endpoint_.user, *password}));
    }
    // A store that is still loading accepts AUTH, and answers this with an error.
    commands.push_back(format(std::array<std::string_view, 1>{"PING"}));
    // One after another: after a refused AUTH the next reply is of no interest.
    for (const auto& command : commands) {
        if (!link_->send(command)) {
            fail("sending failed");
            return false;
        }
        const auto reply = receive();
        if (reply && reply->type == REDIS_REPLY_ERROR) {
            fail(std::string(reply->str, reply->len));
        }
        if (!link_) {
            return false;
        }
    }
    return true;
}

// The next response; null once the connection has failed.
Reply Client::receive() {
    std::array<char, 16384> bytes;
    for (;;) {
        void* reply = nullptr;
        if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
            fail("not the protocol of a state store");
            return nullptr;
        }
        if (reply != nullptr) {
            return Reply(static_cast<redisReply*>(reply));
        }
        const auto got = link_->receive(bytes);
        if (got == 0) {
            fail("connection closed, or the timeout passed");
            return nullptr;
        }
        redisReaderFeed(reader_.get(), bytes.data(), got);
    }
}

void Client::fail(std::string why) {
    link_.reset();
    reader_.reset();
    back_off_ = std::clamp(2 * back_off_, kFirstBackOff, kLongestBackOff);
    next_try_ = Clock::now() + back_off_;
    error_ = std::move(why);
    counters_.failures.fetch_add(1, std::memory_order_relaxed);
    counters_.connected.store(false, std::memory_order_relaxed);
}

}  // namespace voice::valkey
