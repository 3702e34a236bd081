/* Checks that print where they failed, and memory as reported by the kernel. For C and C++. */
#ifndef CHECK_H
#define CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #what);   \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

#define CHECK_BYTES(left, right)                                                 \
    do {                                                                         \
        unsigned long long l = (left), r = (right);                              \
        if (l != r) {                                                            \
            fprintf(stderr, "%s:%d: check failed: %s == %s: %llu, %llu\n", __FILE__,  \
                    __LINE__, #left, #right, l, r);                              \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

/* Entry of /proc/self/smaps for the mapping at an address. */
struct smaps {
    int found;
    size_t start;
    size_t bytes;
    char name[128];
    size_t rss_bytes;
    size_t thp_bytes;
    size_t hugetlb_bytes;
};

static inline struct smaps smaps_at(const void *address) {
    struct smaps answer;
    memset(&answer, 0, sizeof answer);
    FILE *file = fopen("/proc/self/smaps", "r");
    CHECK(file != NULL);
    char line[512];
    int here = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to, kib;
        int name_at = 0;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &name_at) == 2) {
            here = (uintptr_t)address >= from && (uintptr_t)address < to;
            if (here) {
                answer.found = 1;
                answer.start = from;
                answer.bytes = to - from;
                int length = (int)strcspn(line + name_at, "\n");
                snprintf(answer.name, sizeof answer.name, "%.*s", length, line + name_at);
            }
        } else if (here && sscanf(line, "Rss: %lu kB", &kib) == 1) {
            answer.rss_bytes = kib << 10;
        } else if (here && sscanf(line, "AnonHugePages: %lu kB", &kib) == 1) {
            answer.thp_bytes = kib << 10;
        } else if (here && sscanf(line, "Private_Hugetlb: %lu kB", &kib) == 1) {
            answer.hugetlb_bytes = kib << 10;
        }
    }
    fclose(file);
    return answer;
}

/* Returns more bytes than the pool of 2 MiB pages can have. */
static inline size_t beyond_the_pool(void) {
    const char *const files[] = {"nr_hugepages", "nr_overcommit_hugepages"};
    size_t pages = 1;
    for (int i = 0; i < 2; i++) {
        char path[96];
        size_t count = 0;
        snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/hugepages-2048kB/%s", files[i]);
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fscanf(file, "%zu", &count) == 1);
        fclose(file);
        pages += count;
    }
    return pages << 21;
}

#endif
