/* Tests documented rules of malloc and related functions, for any allocator. Prints "kept" and
 * exits with 0 if all hold; else prints the line of the first that does not, and exits with 1. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what)                                                            \
    do {                                                                       \
        if (!(what)) {                                                         \
            printf("line %d: %s, errno %d\n", __LINE__, #what, errno);         \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

/* Volatile, so that the compiler does not optimise the calls. */
static void *(*volatile allocate)(size_t) = malloc;
static void *(*volatile allocate_zeroed)(size_t, size_t) = calloc;
static void *(*volatile resize)(void *, size_t) = realloc;

static void sizes_and_errors(void) {
    const size_t most = PTRDIFF_MAX;
    for (size_t size = 0; size < 5000; size++) {
        unsigned char *p = allocate(size);
        HOLDS(p && (uintptr_t)p % 16 == 0 && malloc_usable_size(p) >= size);
        memset(p, 0x5a, malloc_usable_size(p));
        free(p);
    }
    errno = 0;
    HOLDS(!allocate(most + (size_t)1) && errno == ENOMEM);
    errno = 0;
    HOLDS(!allocate(SIZE_MAX) && errno == ENOMEM);
    errno = 0;
    HOLDS(!allocate_zeroed(SIZE_MAX / 2, 3) && errno == ENOMEM);
    errno = 0;
    HOLDS(!allocate_zeroed((size_t)1 << 33, (size_t)1 << 33) && errno == ENOMEM);
    void *p = allocate(10);
    errno = 0;
    HOLDS(!reallocarray(p, SIZE_MAX / 2, 3) && errno == ENOMEM);
    HOLDS(!resize(p, SIZE_MAX - 100) && memset(p, 1, 10));
    HOLDS(!resize(p, 0));
    p = resize(NULL, 10);
    HOLDS(p);
    errno = 77;
    free(p);
    free(NULL);
    p = allocate((size_t)64 << 20);
    HOLDS(p && errno == 77);
    free(p);
    HOLDS(errno == 77 && malloc_usable_size(NULL) == 0);
}

/* Contents that resemble marks of the allocator: the own address, its complement, and so on. */
static void any_contents(void) {
    for (int kind = 0; kind < 4; kind++) {
        uintptr_t *p = allocate(64), own = (uintptr_t)p;
        uintptr_t kinds[] = {own, ~own, 0, -own};
        for (int i = 0; i < 8; i++)
            p[i] = kinds[kind];
        HOLDS(malloc_usable_size(p) >= 64);
        p = resize(p, 4000);
        HOLDS(p);
        free(p);
    }
}

static void alignments(void) {
    void *p = NULL;
    HOLDS(posix_memalign(&p, 24, 8) == EINVAL && posix_memalign(&p, 4, 8) == EINVAL);
    HOLDS(posix_memalign(&p, 0, 8) == EINVAL);
    errno = 77;
    HOLDS(posix_memalign(&p, 4096, SIZE_MAX - 4096) == ENOMEM && errno == 77 && !p);
    for (size_t align = 8; align <= (size_t)1 << 30; align *= 2) {
        for (size_t size = 0; size < 100000; size = size * 3 + 1) {
            HOLDS(posix_memalign(&p, align, size) == 0 && (uintptr_t)p % align == 0);
            memset(p, 1, size);
            free(p);
            p = memalign(align, size);
            HOLDS(p && (uintptr_t)p % align == 0);
            free(p);
        }
    }
    p = aligned_alloc(64, 640);
    HOLDS(p && (uintptr_t)p % 64 == 0);
    p = resize(p, 6400);
    HOLDS(p);
    free(p);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    p = valloc(1);
    HOLDS(p && (uintptr_t)p % page == 0);
    free(p);
    p = pvalloc(1);
    HOLDS(p && (uintptr_t)p % page == 0 && malloc_usable_size(p) >= page);
    free(p);
}

static void contents(void) {
    for (size_t size = 1; size < (size_t)80 << 20; size = size * 2 + 7) {
        unsigned char *p = allocate(size);
        HOLDS(p);
        memset(p, 0xff, size);
        free(p);
        p = allocate_zeroed(1, size);
        for (size_t i = 0; i < size; i += 1 + size / 1000)
            HOLDS(p[i] == 0);
        for (size_t i = 0; i < size; i += 1 + size / 1000)
            p[i] = (unsigned char)i;
        p = resize(p, size * 2);
        for (size_t i = 0; i < size; i += 1 + size / 1000)
            HOLDS(p[i] == (unsigned char)i);
        p = resize(p, size / 2 + 1);
        for (size_t i = 0; i <= size / 2; i += 1 + size / 1000)
            HOLDS(p[i] == (unsigned char)i);
        free(p);
    }
    struct mallinfo2 info = mallinfo2();
    HOLDS(info.arena >= info.uordblks);
    void *large = allocate((size_t)100 << 20);
    HOLDS(mallinfo2().hblkhd >= (size_t)100 << 20);
    free(large);
    malloc_trim(0);
}

static pthread_key_t key;

/* Frees and allocates at thread exit, when the thread's cache may be gone. */
static void late(void *p) {
    free(p);
    void *again = allocate(1000);
    if (again && random() % 2)
        pthread_setspecific(key, again);
    else
        free(again);
}

static void *churn(void *seed) {
    void *live[64] = {0};
    unsigned state = (unsigned)(uintptr_t)seed;
    pthread_setspecific(key, allocate(100));
    for (int i = 0; i < 5000; i++) {
        int at = rand_r(&state) % 64;
        free(live[at]);
        live[at] = allocate((size_t)(rand_r(&state) % 3000));
    }
    for (int i = 0; i < 64; i++)
        free(live[i]);
    return NULL;
}

static volatile int stop;
static void *churn_on(void *seed) {
    while (!stop)
        churn(seed);
    return NULL;
}

/* Forks while other threads allocate. */
static void forks(void) {
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++)
        HOLDS(pthread_create(&threads[i], NULL, churn_on, (void *)(i + 1)) == 0);
    for (int i = 0; i < 100; i++) {
        void *before = allocate(500);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            free(before);
            churn((void *)9);
            pthread_t thread;
            if (pthread_create(&thread, NULL, churn, (void *)3) != 0 ||
                pthread_join(thread, NULL) != 0)
                _exit(3);
            _exit(42);
        }
        int status;
        HOLDS(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        HOLDS(WEXITSTATUS(status) == 42);
        free(before);
    }
    stop = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    sizes_and_errors();
    any_contents();
    alignments();
    contents();
    HOLDS(pthread_key_create(&key, late) == 0);
    for (int turn = 0; turn < 25; turn++) {
        pthread_t threads[8];
        for (uintptr_t i = 0; i < 8; i++)
            HOLDS(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    }
    forks();
    puts("kept");
    return 0;
}
