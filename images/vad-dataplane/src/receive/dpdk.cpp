#include "receive/dpdk.hpp"

#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf_pool_ops.h>
#include <sched.h>

#include <algorithm>
#include <stdexcept>

namespace voice::receive {
namespace {

constexpr unsigned kCache = 256;
constexpr unsigned kFramesPerQueue = 8192;  // four times the size of AF_XDP's rings
constexpr int kNoHugeMib = 256;

[[noreturn]] void fail(const std::string& step, int error) {
    throw std::runtime_error("DPDK: " + step + ": " + rte_strerror(error < 0 ? -error : error));
}

std::string device(const DpdkOptions& options) {
    const std::string queues = std::to_string(options.queues);
    if (options.driver == Driver::kAfPacket) {
        return "--vdev=net_af_packet0,iface=" + options.interface + ",qpairs=" + queues +
               ",framesz=2048,blocksz=65536,framecnt=4096";
    }
    std::string xdp = "--vdev=net_af_xdp0,iface=" + options.interface + ",start_queue=0,queue_count=" + queues;
    return options.xdp_program.empty() ? xdp : xdp + ",xdp_prog=" + options.xdp_program;
}

// AF_XDP registers the pool's memory as one area of as many bytes as the frames have. In a pool as ENA needs it no
// frame crosses a page, and the gaps push the last frames out of that area: the kernel drops what should go there, which
// with pages of 4 KiB is half of all frames. Where no device reads the memory, frames may cross pages.
rte_mempool* dense_pool(unsigned frames, int node) {
    constexpr unsigned kFrameBytes = sizeof(rte_mbuf) + RTE_MBUF_DEFAULT_BUF_SIZE;
    rte_pktmbuf_pool_private about{};
    about.mbuf_data_room_size = RTE_MBUF_DEFAULT_BUF_SIZE;
    rte_mempool* pool = rte_mempool_create_empty("frames", frames, kFrameBytes, kCache, sizeof about, node,
                                                 RTE_MEMPOOL_F_NO_IOVA_CONTIG);
    if (pool == nullptr) {
        return nullptr;
    }
    rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), nullptr);
    rte_pktmbuf_pool_init(pool, &about);
    if (rte_mempool_populate_default(pool) < 0 || pool->nb_mem_chunks != 1) {
        rte_mempool_free(pool);
        rte_errno = ENOMEM;
        return nullptr;
    }
    rte_mempool_obj_iter(pool, rte_pktmbuf_init, nullptr);
    return pool;
}

// DPDK ties the thread that starts it to its main core, and every thread that is started later would inherit that: all
// pollers would share one core.
class KeptAffinity {
public:
    KeptAffinity() noexcept : known_(pthread_getaffinity_np(pthread_self(), sizeof allowed_, &allowed_) == 0) {}
    KeptAffinity(const KeptAffinity&) = delete;
    KeptAffinity& operator=(const KeptAffinity&) = delete;
    ~KeptAffinity() {
        if (known_) {
            pthread_setaffinity_np(pthread_self(), sizeof allowed_, &allowed_);
        }
    }

private:
    cpu_set_t allowed_{};
    bool known_;
};

}  // namespace

std::vector<std::string> eal_arguments(const DpdkOptions& options) {
    std::vector<std::string> arguments{"vad-dataplane", "-l", std::to_string(options.main_core), "--no-telemetry",
                                       "--log-level=lib.eal:warning"};
    if (options.huge_pages) {
        // In memory: nothing of a killed process is left in the huge page file system.
        arguments.emplace_back("--in-memory");
    } else {
        arguments.insert(arguments.end(), {"--no-huge", "-m", std::to_string(kNoHugeMib)});
    }
    if (options.driver == Driver::kEna) {
        arguments.insert(arguments.end(), {"-a", options.interface});
    } else {
        arguments.insert(arguments.end(), {"--no-pci", device(options)});
    }
    return arguments;
}

Dpdk::Dpdk(const DpdkOptions& options) : options_(options) {
    std::vector<std::string> arguments = eal_arguments(options);
    std::vector<char*> pointers;
    for (std::string& each : arguments) {
        pointers.push_back(each.data());
    }
    const KeptAffinity kept;
    if (rte_eal_init(static_cast<int>(pointers.size()), pointers.data()) < 0) {
        fail("starting its environment (are there free huge pages, and the privileges?)", rte_errno);
    }
    if (rte_eth_dev_count_avail() != 1) {
        rte_eal_cleanup();
        throw std::runtime_error("DPDK: no port on " + options.interface +
                                 ": is the interface there, and bound to the right driver?");
    }
    port_ = static_cast<std::uint16_t>(rte_eth_find_next_owned_by(0, RTE_ETH_DEV_NO_OWNER));
    try {
        configure(options);
    } catch (...) {
        rte_eal_cleanup();
        throw;
    }
}

Dpdk::~Dpdk() {
    rte_eth_dev_stop(port_);
    rte_eth_dev_close(port_);
    rte_eal_cleanup();
}

std::vector<std::pair<std::string, std::uint64_t>> Dpdk::counters(std::string_view ending) const {
    const int count = rte_eth_xstats_get_names(port_, nullptr, 0);
    std::vector<rte_eth_xstat_name> names(static_cast<std::size_t>(std::max(0, count)));
    if (rte_eth_xstats_get_names(port_, names.data(), static_cast<unsigned>(names.size())) != count) {
        return {};
    }
    std::vector<std::uint64_t> ids;
    for (std::size_t id = 0; id < names.size(); ++id) {
        if (std::string_view(names[id].name).ends_with(ending)) {
            ids.push_back(id);
        }
    }
    const auto wanted = static_cast<unsigned>(ids.size());
    std::vector<std::uint64_t> values(wanted);
    // Without ids it would return their number.
    if (wanted == 0 || rte_eth_xstats_get_by_id(port_, ids.data(), values.data(), wanted) != static_cast<int>(wanted)) {
        return {};
    }
    std::vector<std::pair<std::string, std::uint64_t>> found;
    for (std::size_t i = 0; i < wanted; ++i) {
        found.emplace_back(names[ids[i]].name, values[i]);
    }
    return found;
}

void Dpdk::configure(const DpdkOptions& options) {
    const int node = static_cast<int>(rte_socket_id());
    const unsigned frames = kFramesPerQueue * options.queues;
    pool_ = options.driver == Driver::kEna
                ? rte_pktmbuf_pool_create("frames", frames, kCache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, node)
                : dense_pool(frames, node);
    if (pool_ == nullptr) {
        fail("memory in one piece for " + std::to_string(frames) + " frames", rte_errno);
    }
    rte_eth_conf conf{};
    if (options.driver == Driver::kEna && options.queues > 1) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = RTE_ETH_RSS_NONFRAG_IPV4_UDP;
    }
    if (const int error = rte_eth_dev_configure(port_, options.queues, options.queues, &conf); error != 0) {
        fail(std::to_string(options.queues) + " queues", error);
    }
    for (std::uint16_t queue = 0; queue < options.queues; ++queue) {
        const auto socket = static_cast<unsigned>(node);
        if (const int error = rte_eth_rx_queue_setup(port_, queue, options.ring_size, socket, nullptr, pool_)) {
            fail("receive queue " + std::to_string(queue), error);
        }
        if (const int error = rte_eth_tx_queue_setup(port_, queue, options.ring_size, socket, nullptr)) {
            fail("transmit queue " + std::to_string(queue), error);
        }
    }
    if (const int error = rte_eth_dev_start(port_); error != 0) {
        fail("starting " + options.interface, error);
    }
}

}  // namespace voice::receive
