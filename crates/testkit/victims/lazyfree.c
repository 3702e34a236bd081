/* A program that frees memory lazily (MADV_FREE): the kernel takes it when memory is short.
 *
 * usage: lazyfree [REGIONS=64] [FREED=256] [huge]
 *
 *   ready ADDR LEN PID   FREED base pages of each region are lazily freed, spread over the region
 *   reused               after a line on stdin: the freed pages are written again
 *   ok ROUNDS            at the end of stdin, after a last check of the kept pages; exit 0
 *   wrong ADDR           a word is wrong; exit 1
 *
 * It reads words at random all the time, and checks those of kept pages. With `huge` it starts on
 * huge pages. */
#include "victim.h"

#include <poll.h>

static uint8_t *memory;
static size_t regions, freed, per_region, page_size;

static uint64_t *page_at(size_t region, size_t page)
{
    return (uint64_t *)(memory + (region * per_region + page) * page_size);
}

/* Whether a page of a region is lazily freed: FREED of all, evenly spread. */
static int is_freed(size_t page)
{
    return (page + 1) * freed / per_region > page * freed / per_region;
}

static void check(size_t region, size_t page)
{
    uint64_t *wrong = is_freed(page) ? NULL : wrong_word(page_at(region, page), page_size, 1);
    if (wrong) {
        say("wrong %p", (void *)wrong);
        exit(1);
    }
}

static void free_lazily(void)
{
    if (freed == per_region && madvise(memory, regions * per_region * page_size, MADV_FREE))
        die("MADV_FREE");
    for (size_t i = 0; freed < per_region && i < regions * per_region; i++)
        if (is_freed(i % per_region) && madvise(page_at(0, i), page_size, MADV_FREE))
            die("MADV_FREE");
}

static void reuse(void)
{
    for (size_t i = 0; i < regions * per_region; i++)
        if (is_freed(i % per_region))
            fill_page(page_at(0, i), page_size, 1);
    say("reused");
}

int main(int argc, char **argv)
{
    page_size = base_page_size();
    per_region = huge_page_size() / page_size;
    regions = number_arg(argc, argv, 1, 1, 64);
    freed = number_arg(argc, argv, 2, 0, per_region / 2);
    int huge = argc > 3 && !strcmp(argv[3], "huge");
    if (freed > per_region)
        freed = per_region;
    size_t len = regions * per_region * page_size;

    base_pages_only(!huge);
    memory = map_aligned(len, huge);
    fill_all(memory, len, 1);
    base_pages_only(0);
    free_lazily();
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());

    struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t state = 1;
    size_t rounds = 0;
    for (;; rounds++) {
        for (int i = 0; i < 1000; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            size_t region = (state >> 20) % regions, page = (state >> 40) % per_region;
            uint64_t *word = page_at(region, page) + (state >> 50) % (page_size / sizeof *word);
            uint64_t read = *(volatile uint64_t *)word;
            if (read != pattern_at(word, 1))
                check(region, page);
        }
        if (poll(&end, 1, 0) > 0) {
            if (!next_line())
                break;
            reuse();
        }
    }
    for (size_t i = 0; i < regions * per_region; i++)
        check(i / per_region, i % per_region);
    say("ok %zu", rounds);
    return 0;
}
