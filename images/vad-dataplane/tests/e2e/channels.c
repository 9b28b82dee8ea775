/* Preloaded into the program on a veth: DPDK's AF_XDP driver takes as many queues as an interface says it has combined
 * channels. A veth has its queues as receive and transmit channels; this says what a network card would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdint.h>

int ioctl(int file, unsigned long request, ...) {
    typedef int function(int, unsigned long, void *);
    function *real = (function *)(uintptr_t)dlsym(RTLD_NEXT, "ioctl");
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    const int result = real(file, request, argument);
    if (request == SIOCETHTOOL && result == 0) {
        struct ethtool_channels *channels = (void *)((struct ifreq *)argument)->ifr_data;
        if (channels->cmd == ETHTOOL_GCHANNELS && channels->max_combined == 0) {
            channels->max_combined = channels->max_rx;
            channels->combined_count = channels->rx_count;
        }
    }
    return result;
}
