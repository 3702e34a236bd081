/* Shared parts of all victims.
 *
 * A victim
 *   - prints `ready ...` as its first line when its memory is set up;
 *   - exits at the end of stdin, so that none outlives its test;
 *   - starts on base pages whatever the system's THP setting, unless its argument is `huge`. */
#ifndef VICTIM_H
#define VICTIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Prints `what` and errno on stderr and exits 2. Exit status 1 means damage. */
static inline void die(const char *what)
{
    fprintf(stderr, "victim: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* Prints one line and flushes it; stdio buffers a pipe by blocks. */
__attribute__((format(printf, 1, 2))) static inline void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

/* The n-th argument as a number of at least `least`; `otherwise` if it is missing. */
static inline size_t number_arg(int argc, char **argv, int n, size_t least, size_t otherwise)
{
    if (argc <= n)
        return otherwise;
    char *end;
    errno = 0;
    unsigned long value = strtoul(argv[n], &end, 10);
    if (errno || *end || argv[n][0] == '-' || value < least) {
        errno = EINVAL;
        die(argv[n]);
    }
    return value;
}

static inline size_t base_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The size of a transparent huge page; 2 MiB if the kernel has none. */
static inline size_t huge_page_size(void)
{
    size_t size = 2 * MIB;
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "r");
    if (file) {
        if (fscanf(file, "%zu", &size) != 1)
            size = 2 * MIB;
        fclose(file);
    }
    return size;
}

/* Maps private anonymous memory that starts on a huge page boundary. The mapping is exactly
 * [result, result + len). */
static inline void *map_aligned(size_t len, int huge)
{
    size_t align = huge_page_size();
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint8_t *raw = mmap(NULL, len + align, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (raw == MAP_FAILED)
        die("mmap");
    uint8_t *start = (uint8_t *)(((uintptr_t)raw + align - 1) / align * align);
    if (start > raw)
        munmap(raw, (size_t)(start - raw));
    munmap(start + len, (size_t)(raw + align - start));
    if (huge && madvise(start, len, MADV_HUGEPAGE))
        die("MADV_HUGEPAGE");
    return start;
}

/* Starts (1) or ends (0) a phase in which first touches allocate base pages. Unlike MADV_NOHUGEPAGE
 * it does not mark the mapping, so that a later MADV_COLLAPSE works. */
static inline void base_pages_only(int on)
{
    if (prctl(PR_SET_THP_DISABLE, on, 0, 0, 0))
        die("PR_SET_THP_DISABLE");
}

/* The expected word at `address` in `version`. It mixes both, so a check detects pages that moved,
 * are old or became zeros. */
static inline uint64_t pattern_at(const void *address, uint64_t version)
{
    uint64_t x = (uint64_t)(uintptr_t)address + version * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 29) ^ 1;
}

static inline void fill_page(uint64_t *page, size_t bytes, uint64_t version)
{
    for (size_t i = 0; i < bytes / sizeof *page; i++)
        page[i] = pattern_at(page + i, version);
}

/* The first wrong word, or NULL. */
static inline uint64_t *wrong_word(uint64_t *page, size_t bytes, uint64_t version)
{
    for (size_t i = 0; i < bytes / sizeof *page; i++)
        if (page[i] != pattern_at(page + i, version))
            return page + i;
    return NULL;
}

/* Fills [start, start + len) page by page. */
static inline void fill_all(void *start, size_t len, uint64_t version)
{
    size_t page = base_page_size();
    for (size_t at = 0; at < len; at += page)
        fill_page((uint64_t *)((uint8_t *)start + at), page, version);
}

/* Reads one line from stdin. Returns 1, or 0 at the end of stdin. */
static inline int next_line(void)
{
    char byte;
    for (;;) {
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got == 1 && byte == '\n')
            return 1;
        if (got == 0 || (got < 0 && errno != EINTR))
            return 0;
    }
}

static inline void wait_for_end(void)
{
    while (next_line())
        ;
}

static inline void sleep_ms(size_t ms)
{
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

#endif
