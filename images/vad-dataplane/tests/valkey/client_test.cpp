#include "valkey/client.hpp"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "support/store.hpp"

namespace {

using namespace std::chrono_literals;
using namespace voice;
using test::Folder;
using test::Store;
using valkey::Client;

std::string text_of(const valkey::Reply& reply) { return {reply->str, reply->len}; }

TEST(ValkeyClient, AnswersComeInTheOrderOfTheCommands) {
    const Store store;
    Client client(store.endpoint());
    for (int i = 0; i < 1000; ++i) {
        client.append({"ECHO", std::to_string(i)});
    }
    const auto replies = client.exchange();
    ASSERT_TRUE(replies) << client.error();
    ASSERT_EQ(replies->size(), 1000U);
    for (std::size_t i = 0; i < 1000; ++i) {
        EXPECT_EQ(text_of((*replies)[i]), std::to_string(i));
    }
    EXPECT_EQ(client.counters().connects, 1U);
}

TEST(ValkeyClient, ReadsAHash) {
    const Store store;
    store.run({"HSET", "session:7", "state", "open", "binary", std::string_view("a\0b", 3)});
    Client client(store.endpoint());
    client.append({"HGETALL", "session:7"});
    client.append({"HGETALL", "session:8"});
    const auto replies = client.exchange();
    ASSERT_TRUE(replies);
    const auto fields = valkey::fields_of(*(*replies)[0]);
    EXPECT_EQ(valkey::value_of(fields, "state"), "open");
    EXPECT_EQ(valkey::value_of(fields, "binary"), std::string_view("a\0b", 3));
    EXPECT_TRUE(valkey::value_of(fields, "missing").empty());
    EXPECT_TRUE(valkey::fields_of(*(*replies)[1]).empty());
}

TEST(ValkeyClient, LogsInAsTheTiersUser) {
    const Store store;
    const Folder folder;
    test::add_vad_user(store);
    Client client(test::vad_endpoint(store, folder));
    client.append({"HGETALL", "session:1"});
    client.append({"HGETALL", "transcript:1"});
    const auto replies = client.exchange();
    ASSERT_TRUE(replies) << client.error();
    EXPECT_EQ((*replies)[0]->type, REDIS_REPLY_ARRAY);
    EXPECT_EQ((*replies)[1]->type, REDIS_REPLY_ERROR);
}

TEST(ValkeyClient, AWrongPasswordIsAFailureAndARotatedOneIsRead) {
    const Store store;
    const Folder folder;
    test::add_vad_user(store);
    auto endpoint = test::vad_endpoint(store, folder);
    endpoint.password_file = folder.write("password", "old\n");
    Client client(endpoint);
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    EXPECT_NE(client.error().find("WRONGPASS"), std::string::npos) << client.error();
    static_cast<void>(folder.write("password", "secret\n"));
    EXPECT_TRUE(test::eventually([&] {
        client.append({"PING"});
        return client.exchange().has_value();
    }));
}

// As while the store loads its data, when it accepts passwords.
TEST(ValkeyClient, AStoreThatRefusesCommandsAfterTheLogInIsAFailure) {
    const Store store;
    const Folder folder;
    test::add_vad_user(store);
    store.run({"ACL", "SETUSER", "vad", "-ping"});
    Client client(test::vad_endpoint(store, folder));
    client.append({"HGETALL", "session:1"});
    EXPECT_FALSE(client.exchange());
    EXPECT_NE(client.error().find("NOPERM"), std::string::npos) << client.error();
}

TEST(ValkeyClient, FollowsARestoredStoreToItsNewHost) {
    const Store store;
    const Folder folder;
    auto endpoint = store.endpoint();
    endpoint.host_file = folder.write("host", "127.0.0.9\n");
    Client client(endpoint);
    client.append({"PING"});
    EXPECT_FALSE(client.exchange()) << "nobody listens there";
    EXPECT_NE(client.error().find("127.0.0.9"), std::string::npos) << client.error();
    static_cast<void>(folder.write("host", "127.0.0.1\n"));
    EXPECT_TRUE(test::eventually([&] {
        client.append({"PING"});
        return client.exchange().has_value();
    })) << client.error();
}

TEST(ValkeyClient, AMissingPasswordFileIsAFailure) {
    const Store store;
    auto endpoint = store.endpoint();
    endpoint.password_file = "/nonexistent/password";
    Client client(endpoint);
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    EXPECT_NE(client.error().find("/nonexistent/password"), std::string::npos);
}

TEST(ValkeyClient, ComesBackAfterARestart) {
    Store store;
    Client client(store.endpoint());
    client.append({"PING"});
    ASSERT_TRUE(client.exchange());
    store.stop();
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    EXPECT_FALSE(client.counters().connected);
    store.start();
    EXPECT_TRUE(test::eventually([&] {
        client.append({"PING"});
        return client.exchange().has_value();
    }));
    EXPECT_EQ(client.counters().connects, 2U);
}

TEST(ValkeyClient, BacksOffWithoutMakingItsCallerWait) {
    auto endpoint = Store().endpoint();  // gone by now
    Client client(endpoint);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 10'000; ++i) {
        client.append({"PING"});
        EXPECT_FALSE(client.exchange());
    }
    const auto spent = std::chrono::steady_clock::now() - start;
    EXPECT_LT(client.counters().failures, 20U) << "a failed connect for every call";
    EXPECT_LT(spent, test::kPatience) << "it slept in every call";
}

TEST(ValkeyClient, AStoreThatStandsStillCostsItsTimeoutAlone) {
    const Store store;
    auto endpoint = store.endpoint();
    endpoint.timeout = 100ms;
    Client client(endpoint);
    client.append({"PING"});
    ASSERT_TRUE(client.exchange());
    store.freeze();
    const auto start = std::chrono::steady_clock::now();
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    EXPECT_LT(std::chrono::steady_clock::now() - start, test::kPatience);
    EXPECT_EQ(client.counters().failures, 1U) << "and is not asked again";
    store.thaw();
}

TEST(ValkeyClient, WhatIsNoStoreIsRefused) {
    const std::uint16_t port = test::free_port();
    std::thread server([&] {
        const Descriptor listener(socket(AF_INET, SOCK_STREAM, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        ASSERT_EQ(listen(listener.get(), 1), 0);
        const Descriptor connection(accept(listener.get(), nullptr, nullptr));
        const std::string page = "HTTP/1.1 400 Bad Request\r\n\r\n";
        EXPECT_GT(send(connection.get(), page.data(), page.size(), MSG_NOSIGNAL), 0);
        char rest[64];
        EXPECT_GE(recv(connection.get(), rest, sizeof rest, 0), 0);
    });
    valkey::Endpoint endpoint;
    endpoint.host = "127.0.0.1";
    endpoint.port = port;
    endpoint.tls = false;
    Client client(endpoint);
    EXPECT_TRUE(test::eventually([&] {
        client.append({"PING"});
        EXPECT_FALSE(client.exchange());
        return client.error().find("protocol") != std::string::npos;
    }));
    server.join();
}

// A self-signed certificate for 127.0.0.1, and its key.
void make_certificate(const std::string& certificate_path, const std::string& key_path) {
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
    const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
    X509_set_version(certificate.get(), X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    X509_EXTENSION* name = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(certificate.get(), name, -1);
    X509_EXTENSION_free(name);
    ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    FILE* file = std::fopen(certificate_path.c_str(), "w");
    PEM_write_X509(file, certificate.get());
    std::fclose(file);
    file = std::fopen(key_path.c_str(), "w");
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
}

class ValkeyTls : public ::testing::Test {
protected:
    ValkeyTls() {
        std::signal(SIGPIPE, SIG_IGN);
        make_certificate(folder_ / "cert.pem", folder_ / "key.pem");
        store_ = std::make_unique<Store>(
            std::vector<std::string>{"--tls-cert-file", folder_ / "cert.pem", "--tls-key-file", folder_ / "key.pem",
                                     "--tls-ca-cert-file", folder_ / "cert.pem"},
            true);
        endpoint_ = store_->endpoint();
        endpoint_.tls = true;
        endpoint_.ca_file = folder_ / "cert.pem";
    }

    Folder folder_;
    std::unique_ptr<Store> store_;
    valkey::Endpoint endpoint_;
};

TEST_F(ValkeyTls, Talks) {
    Client client(endpoint_);
    const std::string large(100'000, 'x');
    client.append({"SET", "session:1", large});
    client.append({"GET", "session:1"});
    const auto replies = client.exchange();
    ASSERT_TRUE(replies) << client.error();
    EXPECT_EQ(text_of((*replies)[1]), large);
}

TEST_F(ValkeyTls, ComesBackAfterARestart) {
    Client client(endpoint_);
    client.append({"PING"});
    ASSERT_TRUE(client.exchange()) << client.error();
    store_->stop();
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    store_->start();
    EXPECT_TRUE(test::eventually([&] {
        client.append({"PING"});
        return client.exchange().has_value();
    }));
}

TEST_F(ValkeyTls, AnUnknownAuthorityIsRefused) {
    endpoint_.ca_file.clear();
    Client client(endpoint_);
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    EXPECT_NE(client.error().find("certificate verify failed"), std::string::npos) << client.error();
}

TEST_F(ValkeyTls, AnothersCertificateIsRefused) {
    endpoint_.host = "localhost";  // the certificate is for 127.0.0.1
    Client client(endpoint_);
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    EXPECT_NE(client.error().find("certificate verify failed"), std::string::npos) << client.error();
}

TEST_F(ValkeyTls, AMissingAuthorityFileIsToldAsSuch) {
    endpoint_.ca_file = "/nonexistent.pem";
    Client client(endpoint_);
    client.append({"PING"});
    EXPECT_FALSE(client.exchange());
    EXPECT_NE(client.error().find("TLS set-up"), std::string::npos) << client.error();
}

}  // namespace
