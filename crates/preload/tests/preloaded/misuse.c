/* Misuses malloc in one way, after printing the address.
 *
 * misuse KIND      prints "0x…" and must end there; prints "survived" if it did not */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Volatile, so that the compiler does not optimise the calls. */
static void *(*volatile allocate)(size_t) = malloc;
static void (*volatile release)(void *) = free;
static void *(*volatile resize)(void *, size_t) = realloc;
static size_t (*volatile measure)(void *) = malloc_usable_size;

static char outside[256] __attribute__((aligned(64)));

static void *release_twice(void *p) {
    release(p);
    release(p);
    return NULL;
}

static void *named(void *p) {
    printf("0x%jx\n", (uintmax_t)(uintptr_t)p);
    fflush(stdout);
    return p;
}

static void in_thread(void *(*work)(void *), void *p) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, p) == 0)
        pthread_join(thread, NULL);
}

static void *release_once(void *p) {
    release(p);
    return NULL;
}

static int is(const char *kind, const char *name) {
    return strcmp(kind, name) == 0;
}

/* Allocates in a handler of SIGABRT, like crash reporters. */
static void allocate_at_the_end(int signal) {
    (void)signal;
    release(allocate(1000));
}

/* Frees one object of a span twice while another is in use, so that the count reaches 0. */
static void empty_a_span_too_soon(size_t size) {
    enum { COUNT = 4000 };
    static char *all[COUNT];
    for (int i = 0; i < COUNT; i++)
        all[i] = allocate(size);
    uintptr_t span = (uintptr_t)all[COUNT / 2] >> 16;
    char *used = NULL, *twice = NULL;
    for (int i = 0; i < COUNT; i++) {
        int is_there = (uintptr_t)all[i] >> 16 == span;
        if (is_there && !used) {
            used = all[i];
            continue;
        }
        if (is_there && !twice)
            twice = named(all[i]);
        release(all[i]);
    }
    release(twice);
    for (int i = 0; i < COUNT; i++)
        memset(allocate(size / 2 + (size_t)i), 1, size / 2);
}

int main(int count, char **args) {
    const char *kind = count > 1 ? args[1] : "";
    signal(SIGABRT, allocate_at_the_end);
    alarm(60);
    setvbuf(stdout, NULL, _IOLBF, 256);
    char *a = allocate(48), *b = allocate(48);
    char *large = allocate((size_t)1 << 20), *huge = allocate((size_t)20 << 20);
    if (is(kind, "twice")) {
        release_twice(named(a));
    } else if (is(kind, "twice-with-another-between")) {
        release(named(a));
        release(b);
        release(a);
        for (int i = 0; i < 10000; i++)
            allocate(48);
    } else if (is(kind, "twice-before-the-span-is-empty")) {
        empty_a_span_too_soon(1000);
    } else if (is(kind, "twice-in-another-thread")) {
        in_thread(release_twice, named(a));
    } else if (is(kind, "once-in-each-of-two-threads")) {
        in_thread(release_once, named(a));
        release(a);
        for (int i = 0; i < 10000; i++)
            allocate(48);
    } else if (is(kind, "large-twice")) {
        release_twice(named(large));
    } else if (is(kind, "huge-twice")) {
        release_twice(named(huge));
    } else if (is(kind, "inside")) {
        release(named(a + 16));
    } else if (is(kind, "inside-in-another-thread")) {
        in_thread(release_once, named(a + 16));
    } else if (is(kind, "inside-large")) {
        release(named(large + 100000));
    } else if (is(kind, "inside-huge")) {
        release(named(huge + ((size_t)8 << 20)));
    } else if (is(kind, "never-allocated")) {
        release(named(a + 48 * 1000));
    } else if (is(kind, "static")) {
        release(named(outside + 64));
    } else if (is(kind, "stack")) {
        char room[64] __attribute__((aligned(64)));
        release(named(room));
    } else if (is(kind, "mapped")) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        release(named(mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, -1, 0)));
    } else if (is(kind, "unmapped")) {
        release(named((void *)(uintptr_t)0x123456780));
    } else if (is(kind, "resize-static")) {
        resize(named(outside + 64), 100);
    } else if (is(kind, "resize-inside")) {
        resize(named(a + 16), 100);
    } else if (is(kind, "resize-free")) {
        release(named(a));
        resize(a, 100);
    } else if (is(kind, "measure-static")) {
        measure(named(outside + 64));
    } else if (is(kind, "measure-free")) {
        release(named(a));
        measure(a);
    } else if (is(kind, "write-after-free")) {
        release(named(a));
        memset(a, 1, 48);
        for (int i = 0; i < 10000; i++)
            allocate(48);
    }
    puts("survived");
    return 0;
}
