/* Pages with known content, zeros or a pattern, which threads check and change in rounds.
 *
 * Each page belongs to one thread; no other thread may write or check it. */
#ifndef PAGES_H
#define PAGES_H

#include "victim.h"

#include <pthread.h>
#include <stdatomic.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Expected content of a page: the pattern of address `from` in a version; version 0 is zeros. */
struct content {
    uint64_t from, version;
};

static uint8_t *memory;
static struct content *contents;
static size_t pages, page_size, per_huge;
static atomic_int stopping;

static inline void make_pages(size_t len)
{
    page_size = base_page_size();
    per_huge = huge_page_size() / page_size;
    pages = len / page_size;
    contents = calloc(pages, sizeof *contents);
    if (!contents)
        die("calloc");
    memory = map_aligned(len, 1);
    memset(memory, 0, len);
}

static inline uint64_t *words_of(size_t page)
{
    return (uint64_t *)(memory + page * page_size);
}

static inline uint64_t word_in(struct content content, size_t word)
{
    const void *address = (const void *)(uintptr_t)(content.from + word * sizeof(uint64_t));
    return content.version ? pattern_at(address, content.version) : 0;
}

/* Whether all words of `page` are right; reports the first that is not. */
static inline int is_right(size_t page)
{
    const uint64_t *words = words_of(page);
    for (size_t i = 0; i < page_size / sizeof *words; i++) {
        uint64_t want = word_in(contents[page], i), got = words[i];
        if (got != want) {
            say("damaged %p want %016" PRIx64 " got %016" PRIx64 " version %" PRIu64,
                (const void *)(words + i), want, got, contents[page].version);
            return 0;
        }
    }
    return 1;
}

static inline void check(size_t page)
{
    if (!is_right(page))
        _exit(1);
}

/* Rewrites `page` word by word; version 0 zeroes it. */
static inline void rewrite(size_t page, uint64_t version)
{
    contents[page] = (struct content){.from = (uintptr_t)words_of(page), .version = version};
    for (size_t i = 0; i < page_size / sizeof(uint64_t); i++)
        words_of(page)[i] = word_in(contents[page], i);
}

static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

/* Zeroes `page` with probability 1/2, rewrites it with 3/8, and leaves it with 1/8. */
static inline void churn_page(size_t page, uint64_t *state)
{
    uint64_t choice = next_random(state);
    if (choice % 8 < 4)
        rewrite(page, 0);
    else if (choice % 8 < 7)
        rewrite(page, choice | 1);
}

/* Collapses every `step`-th region from `first` on, ignoring failures. */
static inline void collapse(size_t first, size_t step)
{
    size_t huge = per_huge * page_size;
    for (size_t region = first; region < pages / per_huge; region += step)
        madvise(memory + region * huge, huge, MADV_COLLAPSE);
}

/* Runs `work` on each of `threads` threads, with the thread's index, until `wait` returns and
 * `stopping` is set. `work` returns its rounds. Returns the fewest. */
static inline size_t rounds_of(size_t threads, void *(*work)(void *), void (*wait)(void))
{
    size_t least = SIZE_MAX;
    pthread_t *workers = calloc(threads, sizeof *workers);
    if (!workers)
        die("calloc");
    for (size_t t = 0; t < threads; t++)
        if ((errno = pthread_create(&workers[t], NULL, work, (void *)(uintptr_t)t)))
            die("pthread_create");
    wait();
    atomic_store(&stopping, 1);
    for (size_t t = 0; t < threads; t++) {
        void *rounds;
        pthread_join(workers[t], &rounds);
        if ((size_t)(uintptr_t)rounds < least)
            least = (size_t)(uintptr_t)rounds;
    }
    free(workers);
    return least;
}

/* Ends a victim, before its ready line, if the machine lacks something. */
static inline void unable(const char *what)
{
    say("unable %s: %s", what, strerror(errno));
    exit(0);
}

#endif
