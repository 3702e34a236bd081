/* Tests of regions, arenas and errors in C. */
#define _GNU_SOURCE
#include <errno.h>
#include <hugepilot.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { MIB = 1 << 20 };

static void the_library_matches_the_header(void) {
    CHECK(hugepilot_abi() == HUGEPILOT_ABI);
    CHECK(strcmp(hugepilot_version(), HUGEPILOT_VERSION) == 0);
}

static void errors_have_codes_and_texts(void) {
    char text[320];
    hugepilot_clear_error();
    CHECK(hugepilot_last_error() == HUGEPILOT_OK && hugepilot_last_errno() == 0);
    CHECK(hugepilot_last_error_text(text, sizeof text) == strlen("no error"));
    CHECK(strcmp(text, "no error") == 0);

    CHECK(hugepilot_region_map(0, NULL) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ARGUMENT);
    CHECK(hugepilot_region_map(SIZE_MAX, NULL) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_OVERFLOW);
    CHECK(hugepilot_region_map((size_t)1 << 60, NULL) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_NO_MEMORY && hugepilot_last_errno() == ENOMEM);
    size_t len = hugepilot_last_error_text(text, sizeof text);
    CHECK(len == strlen(text));
    CHECK(strstr(text, "cannot map 1EiB (ENOMEM); help: raise ulimit -v"));
    /* The text is truncated to the buffer. */
    char cut[8];
    memset(cut, '#', sizeof cut);
    CHECK(hugepilot_last_error_text(cut, 5) == len && strcmp(cut, "cann") == 0 && cut[5] == '#');
    CHECK(hugepilot_last_error_text(NULL, 0) == len);

    hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
    options.chain = "hugetlb-3m";
    CHECK(hugepilot_region_map(1, &options) == NULL && hugepilot_last_error() == HUGEPILOT_CHAIN);
    hugepilot_last_error_text(text, sizeof text);
    CHECK(strstr(text, "hugetlb-2m,thp,base"));
    options.chain = NULL;
    options.name = "a[b]";
    CHECK(hugepilot_region_map(1, &options) == NULL && hugepilot_last_error() == HUGEPILOT_NAME);
    options.name = NULL;
    options.numa = "bind:63";
    CHECK(hugepilot_region_map(1, &options) == NULL && hugepilot_last_error() == HUGEPILOT_NODES);
    options.numa = NULL;
    options.align_bytes = 3;
    CHECK(hugepilot_region_map(1, &options) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ALIGNMENT);
    options.align_bytes = 0;
    options.size--;
    CHECK(hugepilot_region_map(1, &options) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ARGUMENT);

    for (int code = HUGEPILOT_OK; code <= HUGEPILOT_OTHER; code++) {
        const char *words = hugepilot_error_text((hugepilot_error)code);
        CHECK(strlen(words) > 5);
        CHECK(code == 0 || strcmp(words, hugepilot_error_text((hugepilot_error)(code - 1))) != 0);
    }
}

static void *failing_thread(void *unused) {
    CHECK(hugepilot_last_error() == HUGEPILOT_OK);
    CHECK(hugepilot_region_map(SIZE_MAX, NULL) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_OVERFLOW);
    return unused;
}

static void each_thread_has_its_own_last_error(void) {
    CHECK(hugepilot_region_map(0, NULL) == NULL);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, failing_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(hugepilot_last_error() == HUGEPILOT_ARGUMENT);
    /* Success leaves it unchanged, like errno. */
    hugepilot_region *region = hugepilot_region_map(1, NULL);
    CHECK(region && hugepilot_last_error() == HUGEPILOT_ARGUMENT);
    hugepilot_region_unmap(region);
}

static void null_is_an_error(void) {
    hugepilot_usage usage;
    hugepilot_region_unmap(NULL);
    CHECK(hugepilot_region_data(NULL) == NULL && hugepilot_region_size(NULL) == 0);
    CHECK(hugepilot_region_requested(NULL, NULL, 0) == 0);
    CHECK(hugepilot_region_backing(NULL, NULL, 0) == 0);
    CHECK(hugepilot_region_refused(NULL, 0, NULL, 0) == HUGEPILOT_OK);
    CHECK(hugepilot_region_named(NULL) == 0);
    CHECK(hugepilot_region_usage(NULL, &usage) == HUGEPILOT_ARGUMENT);
    CHECK(hugepilot_region_prefault(NULL, 1) == HUGEPILOT_ARGUMENT);
    CHECK(hugepilot_region_collapse(NULL, NULL) == HUGEPILOT_ARGUMENT);
    CHECK(hugepilot_region_grow(NULL, 1, 1) == HUGEPILOT_ARGUMENT);
    hugepilot_arena_delete(NULL);
    hugepilot_arena_reset(NULL);
    CHECK(hugepilot_arena_alloc(NULL, 1, 1) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ARGUMENT);
    CHECK(hugepilot_arena_mapped(NULL) == 0);
    CHECK(hugepilot_arena_usage(NULL, &usage) == HUGEPILOT_ARGUMENT);
    hugepilot_region *region = hugepilot_region_map(1, NULL);
    CHECK(hugepilot_region_usage(region, NULL) == HUGEPILOT_ARGUMENT);
    hugepilot_region_unmap(region);
}

/* Returns the resident bytes that smaps has beyond a region of 8 MiB. They belong to a neighbour of
 * the same advice, such as memory of a sanitizer: a kernel that does not name anonymous memory
 * merges the two. */
static size_t beyond(const struct smaps *smaps) {
    return smaps->bytes > 8 * MIB && smaps->rss_bytes > 8 * MIB ? smaps->rss_bytes - 8 * MIB : 0;
}

static void the_usage_equals_smaps(const char *chain) {
    hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
    options.chain = chain;
    options.name = chain[0] == 't' ? "some thp" : "no thp";
    hugepilot_region *region = hugepilot_region_map(8 * MIB, &options);
    CHECK(region != NULL && hugepilot_region_size(region) == 8 * MIB);
    char *data = hugepilot_region_data(region);
    struct smaps smaps = smaps_at(data);
    CHECK(smaps.found && (smaps.rss_bytes == 0 || smaps.bytes > 8 * MIB));
    CHECK((strstr(smaps.name, options.name) != NULL) == hugepilot_region_named(region));
    for (size_t i = 0; i < 8 * MIB; i += 4096) CHECK(data[i] == 0);
    CHECK(hugepilot_region_prefault(region, 2) == HUGEPILOT_OK);
    memset(data, 7, 3 * MIB);

    hugepilot_usage usage;
    /* Two moments: the kernel may move pages in between, so only a lasting difference counts. */
    for (int attempt = 0; attempt < 5; attempt++) {
        CHECK(hugepilot_region_usage(region, &usage) == HUGEPILOT_OK);
        smaps = smaps_at(data);
        if (usage.thp_bytes == smaps.thp_bytes && smaps.rss_bytes - beyond(&smaps) == 8 * MIB &&
            usage.base_bytes + usage.thp_bytes == 8 * MIB)
            break;
        usleep(20000);
    }
    CHECK_BYTES(usage.thp_bytes, smaps.thp_bytes);
    CHECK_BYTES(smaps.rss_bytes - beyond(&smaps), 8 * MIB);
    CHECK_BYTES(usage.base_bytes + usage.thp_bytes, 8 * MIB);
    CHECK_BYTES(usage.untouched_bytes, 0);
    char backing[32];
    CHECK(hugepilot_region_backing(region, backing, sizeof backing) < sizeof backing);
    CHECK(strcmp(backing, "base") != 0 || smaps.thp_bytes == 0);
    char requested[64];
    CHECK(hugepilot_region_requested(region, requested, sizeof requested) == strlen(chain));
    CHECK(strcmp(requested, chain) == 0);
    size_t thp_kib = (size_t)usage.thp_bytes >> 10;
    printf("%s: on %s, %zu KiB on transparent huge pages\n", chain, backing, thp_kib);

    if (strcmp(backing, "collapse") == 0) {
        hugepilot_collapse_outcome collapsed;
        CHECK(hugepilot_region_collapse(region, &collapsed) == HUGEPILOT_OK);
        CHECK(collapsed.after_bytes == smaps_at(data).thp_bytes);
    }
    CHECK(hugepilot_region_grow(region, 20 * MIB, 3 * MIB) == HUGEPILOT_OK);
    data = hugepilot_region_data(region);
    CHECK(hugepilot_region_size(region) == 20 * MIB && data[0] == 7 && data[3 * MIB - 1] == 7);
    CHECK(data[8 * MIB] == 0 && data[20 * MIB - 1] == 0);
    hugepilot_region_unmap(region);
    CHECK(!smaps_at(data).found);
}

static void a_refused_backing_has_a_cause(void) {
    hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
    size_t wanted = beyond_the_pool();
    options.chain = "hugetlb-2m,base";
    hugepilot_region *region = hugepilot_region_map(wanted, &options);
    CHECK(region != NULL);
    char text[320], words[64];
    snprintf(words, sizeof words, "%zu requested, ", wanted >> 21);
    CHECK(hugepilot_region_refused(region, 0, text, sizeof text) == HUGEPILOT_POOL_EMPTY);
    CHECK(strstr(text, words));
    CHECK(strstr(text, "; help: sudo hugepilot pool set --size 2MiB --count "));
    CHECK(hugepilot_region_refused(region, 1, text, sizeof text) == HUGEPILOT_OK);
    hugepilot_region_unmap(region);
    options.chain = "hugetlb-2m";
    CHECK(hugepilot_region_map(wanted, &options) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_POOL_EMPTY && hugepilot_last_errno() == ENOMEM);
}

static void alignment_is_kept(void) {
    hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
    for (size_t align = 1; align <= (size_t)1 << 30; align *= 2) {
        options.align_bytes = align;
        hugepilot_region *region = hugepilot_region_map(1, &options);
        CHECK(region && (uintptr_t)hugepilot_region_data(region) % align == 0);
        hugepilot_region_unmap(region);
    }
    options.align_bytes = (size_t)1 << 31;
    CHECK(hugepilot_region_map(1, &options) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ALIGNMENT);
}

static void an_arena_allocates_and_resets(void) {
    hugepilot_arena *arena = hugepilot_arena_new(1 * MIB, 6 * MIB, NULL);
    CHECK(arena && hugepilot_arena_mapped(arena) == 0);
    char *first = hugepilot_arena_alloc(arena, 100, 1);
    char *second = hugepilot_arena_alloc(arena, 100, 65536);
    CHECK(first && second >= first + 100 && (uintptr_t)second % 65536 == 0);
    memset(first, 1, 100);
    memset(second, 2, 100);
    CHECK(first[99] == 1 && second[0] == 2);
    CHECK(hugepilot_arena_alloc(arena, 0, 64) != NULL);
    CHECK(hugepilot_arena_alloc(arena, 1, 3) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ALIGNMENT);
    CHECK(hugepilot_arena_alloc(arena, 1, 0) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ALIGNMENT);
    CHECK(hugepilot_arena_alloc(arena, SIZE_MAX, 1) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_OVERFLOW);
    CHECK(hugepilot_arena_alloc(arena, 7 * MIB, 1) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_LIMIT);
    hugepilot_usage usage;
    CHECK(hugepilot_arena_usage(arena, &usage) == HUGEPILOT_OK);
    CHECK(hugepilot_arena_mapped(arena) == 2 * MIB);
    CHECK(usage.base_bytes + usage.thp_bytes + usage.untouched_bytes == 2 * MIB);
    CHECK(usage.base_bytes + usage.thp_bytes > 0);
    hugepilot_arena_reset(arena);
    CHECK(hugepilot_arena_alloc(arena, 100, 1) == first);
    hugepilot_arena_delete(arena);
}

static void a_heap_allocates_and_frees(void) {
    hugepilot_heap *heap = hugepilot_heap_new(NULL);
    hugepilot_stats stats;
    CHECK(heap && hugepilot_heap_stats(heap, &stats) == HUGEPILOT_OK && stats.mapped_bytes == 0);
    char *text = hugepilot_heap_realloc(heap, NULL, 6, 1);
    char *other = hugepilot_heap_alloc(heap, 6, 4096);
    CHECK(text && (uintptr_t)other % 4096 == 0);
    strcpy(text, "kept!");
    for (size_t size = 10; size <= 64 * MIB; size *= 4) {
        text = hugepilot_heap_realloc(heap, text, size, 64);
        CHECK(text && (uintptr_t)text % 64 == 0 && strcmp(text, "kept!") == 0);
        text[size - 1] = 1;
    }
    CHECK(hugepilot_heap_realloc(heap, text, SIZE_MAX, 1) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_OVERFLOW);
    CHECK(hugepilot_heap_realloc(heap, text, 1, 3) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ALIGNMENT);
    CHECK(strcmp(text, "kept!") == 0);
    CHECK(hugepilot_heap_stats(heap, &stats) == HUGEPILOT_OK && stats.allocated_bytes >= 40 * MIB);
    hugepilot_heap_free(heap, text);
    hugepilot_heap_free(heap, other);
    CHECK(hugepilot_heap_stats(heap, &stats) == HUGEPILOT_OK && stats.allocated_bytes == 0);
    CHECK(hugepilot_heap_stats(heap, NULL) == HUGEPILOT_ARGUMENT);
    hugepilot_heap_delete(heap);
    hugepilot_heap_free(NULL, NULL);
    CHECK(hugepilot_heap_trim(NULL) == 0);
    CHECK(hugepilot_heap_stats(NULL, &stats) == HUGEPILOT_ARGUMENT);
    CHECK(hugepilot_heap_realloc(NULL, NULL, 1, 1) == NULL);
    CHECK(hugepilot_last_error() == HUGEPILOT_ARGUMENT);
}

static int child_exits(pid_t child) {
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void a_child_has_its_own_copy(void) {
    hugepilot_region *region = hugepilot_region_map(4 * MIB, NULL);
    hugepilot_arena *arena = hugepilot_arena_new(1 * MIB, 0, NULL);
    char *data = hugepilot_region_data(region), *piece = hugepilot_arena_alloc(arena, 100, 1);
    memset(data, 1, 4 * MIB);
    memset(piece, 1, 100);
    pid_t child = fork();
    if (child == 0) {
        int right = data[0] == 1 && data[4 * MIB - 1] == 1 && piece[99] == 1;
        memset(data, 2, 4 * MIB);
        piece[0] = 2;
        right = right && hugepilot_region_grow(region, 8 * MIB, 4 * MIB) == HUGEPILOT_OK;
        right = right && ((char *)hugepilot_region_data(region))[4 * MIB - 1] == 2;
        right = right && hugepilot_arena_alloc(arena, 3 * MIB, 4096) != NULL;
        hugepilot_region_unmap(region);
        hugepilot_arena_delete(arena);
        region = hugepilot_region_map(4 * MIB, NULL);
        right = right && region && hugepilot_region_prefault(region, 2) == HUGEPILOT_OK;
        hugepilot_region_unmap(region);
        _exit(right ? 0 : 9);
    }
    CHECK(child_exits(child) == 0);
    CHECK(data[0] == 1 && data[4 * MIB - 1] == 1 && piece[0] == 1);
    hugepilot_region_unmap(region);
    hugepilot_arena_delete(arena);
}

static void a_child_does_not_see_absent_memory(void) {
    hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
    options.fork = HUGEPILOT_FORK_ABSENT;
    hugepilot_region *region = hugepilot_region_map(2 * MIB, &options);
    char *data = hugepilot_region_data(region);
    data[5] = 5;
    pid_t child = fork();
    if (child == 0) _exit(smaps_at(data).found);
    CHECK(child_exits(child) == 0 && smaps_at(data).found && data[5] == 5);
    hugepilot_region_unmap(region);
}

int main(void) {
    the_library_matches_the_header();
    errors_have_codes_and_texts();
    each_thread_has_its_own_last_error();
    null_is_an_error();
    the_usage_equals_smaps("thp,base");
    the_usage_equals_smaps("collapse,base");
    the_usage_equals_smaps("base");
    a_refused_backing_has_a_cause();
    alignment_is_kept();
    an_arena_allocates_and_resets();
    a_heap_allocates_and_frees();
    a_child_has_its_own_copy();
    a_child_does_not_see_absent_memory();
    puts("all checks passed");
}
