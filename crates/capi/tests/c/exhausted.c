/* Tests without address space, and then without malloc: errors, and no leaks. Without sanitizers,
 * which need terabytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <hugepilot.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

enum { MIB = 1 << 20 };

static size_t address_space(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t pages = 0;
    CHECK(file && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void limit(size_t more) {
    struct rlimit limit = {address_space() + more, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void no_address_space_is_an_error(void) {
    char text[320];
    size_t before = address_space();
    limit(64 * MIB);
    CHECK(hugepilot_region_map(100 * MIB, NULL) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_NO_MEMORY && hugepilot_last_errno() == ENOMEM);
    hugepilot_last_error_text(text, sizeof text);
    CHECK(strcmp(text, "cannot map 100MiB (ENOMEM); help: raise ulimit -v, vm.max_map_count, or, "
                       "if vm.overcommit_memory is 2, vm.overcommit_ratio") == 0);
    hugepilot_arena *arena = hugepilot_arena_new(10 * MIB, 0, NULL);
    size_t pieces = 0;
    while (hugepilot_arena_alloc(arena, 10 * MIB, 1)) pieces++;
    CHECK(hugepilot_last_error() == HUGEPILOT_NO_MEMORY && pieces >= 4 && pieces <= 6);
    hugepilot_arena_delete(arena);
    CHECK(address_space() == before);
}

/* glibc's malloc, behind the one below. */
extern void *__libc_malloc(size_t size);

static int malloc_is_empty;

void *malloc(size_t size) {
    return malloc_is_empty ? NULL : __libc_malloc(size);
}

/* Without memory for the handle, the region is unmapped again, and the error still has a text. */
static void no_malloc_is_an_error(void) {
    char text[320];
    size_t before = address_space();
    malloc_is_empty = 1;
    hugepilot_region *region = hugepilot_region_map(2 * MIB, NULL);
    hugepilot_error for_region = hugepilot_last_error();
    hugepilot_last_error_text(text, sizeof text);
    hugepilot_arena *arena = hugepilot_arena_new(2 * MIB, 0, NULL);
    malloc_is_empty = 0;
    CHECK(region == NULL && for_region == HUGEPILOT_NO_MEMORY);
    CHECK(strstr(text, "no memory for a handle"));
    CHECK(arena == NULL && hugepilot_last_error() == HUGEPILOT_NO_MEMORY);
    CHECK(hugepilot_last_errno() == ENOMEM);
    CHECK(address_space() == before);
    /* Without memory to format an error, its text is that of its code. */
    malloc_is_empty = 1;
    region = hugepilot_region_map(100 * MIB, NULL);
    hugepilot_last_error_text(text, sizeof text);
    malloc_is_empty = 0;
    CHECK(region == NULL && strcmp(text, hugepilot_error_text(HUGEPILOT_NO_MEMORY)) == 0);
}

int main(void) {
    no_address_space_is_an_error();
    no_malloc_is_an_error();
    puts("all checks passed");
}
