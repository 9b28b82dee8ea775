/* Preloaded into the program: counts what each thread allocates and locks, in the file VOICE_COUNTS_FILE.
 * With VOICE_COUNTS_CONTROL set, every call that receives or sends a batch allocates and locks too: a test that does
 * not notice that would notice nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 256 };
struct counts {
    _Atomic int64_t thread;
    _Atomic int64_t allocations;
    _Atomic int64_t locks;
};

static struct counts *all;
static _Atomic int used;
static bool control;
static __thread struct counts *mine __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void open_file(void) {
    const char *path = getenv("VOICE_COUNTS_FILE");
    int file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    size_t bytes = THREADS * sizeof(struct counts);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        abort();
    }
    all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (all == MAP_FAILED) {
        abort();
    }
    control = getenv("VOICE_COUNTS_CONTROL") != NULL;
}

static struct counts *of_this_thread(void) {
    static struct counts before_start;
    if (!all) {
        return &before_start;
    }
    if (!mine) {
        int at = atomic_fetch_add(&used, 1);
        if (at >= THREADS) {
            abort();
        }
        mine = &all[at];
        mine->thread = (int64_t)gettid();
    }
    return mine;
}

static void count_allocation(void) { ++of_this_thread()->allocations; }
static void count_lock(void) { ++of_this_thread()->locks; }

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes) {
    count_allocation();
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    count_allocation();
    return __libc_calloc(count, bytes);
}
void *realloc(void *block, size_t bytes) {
    count_allocation();
    return __libc_realloc(block, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
    count_allocation();
    return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **block, size_t alignment, size_t bytes) {
    *block = memalign(alignment, bytes);
    return *block ? 0 : 12; /* ENOMEM */
}

/* The function of this name that would have been called. */
#define REAL(type, name)                                          \
    static _Atomic(type *) real;                                  \
    if (!real) {                                                  \
        real = (type *)(uintptr_t)dlsym(RTLD_NEXT, name);         \
    }

#define COUNT_LOCK(name, lock)                                    \
    int name(lock *which) {                                       \
        typedef int function(lock *);                             \
        REAL(function, #name)                                     \
        count_lock();                                             \
        return real(which);                                       \
    }
COUNT_LOCK(pthread_mutex_lock, pthread_mutex_t)
COUNT_LOCK(pthread_mutex_trylock, pthread_mutex_t)
COUNT_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
COUNT_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)

/* What waits on an atomic calls it with SYS_futex. */
long syscall(long number, ...) {
    typedef long function(long, ...);
    REAL(function, "syscall")
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; ++i) {
        arguments[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_futex) {
        count_lock();
    }
    return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

static void misbehave(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    if (control) {
        void *volatile block = malloc(1);
        free(block);
        pthread_mutex_lock(&mutex);
        pthread_mutex_unlock(&mutex);
    }
}

int recvmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags, struct timespec *limit) {
    typedef int function(int, struct mmsghdr *, unsigned, int, struct timespec *);
    REAL(function, "recvmmsg")
    misbehave();
    return real(socket, messages, count, flags, limit);
}

int sendmmsg(int socket, struct mmsghdr *messages, unsigned count, int flags) {
    typedef int function(int, struct mmsghdr *, unsigned, int);
    REAL(function, "sendmmsg")
    misbehave();
    return real(socket, messages, count, flags);
}
