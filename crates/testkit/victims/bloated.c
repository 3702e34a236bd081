/* A program whose huge pages are mostly zeros. It checks the written words and the zeros.
 *
 * usage: bloated [REGIONS=64] [EVERY=5] [busy|advised|hidden]
 *
 *   ready ADDR LEN PID   one base page of EVERY is written in each of REGIONS huge pages
 *   ok ROUNDS            at the end of stdin, after a last check of every page; exit 0
 *   wrong ADDR           a word is wrong; exit 1
 *
 *   busy      checks the written pages all the time, not only at the end
 *   advised   keeps MADV_HUGEPAGE; otherwise MADV_NOHUGEPAGE prevents new huge pages
 *   hidden    forbids access to the memory (PROT_NONE) until the last check */
#include "victim.h"

#include <poll.h>

static uint8_t *memory;
static size_t pages, every, page_size;

static void check(size_t page)
{
    uint64_t *words = (uint64_t *)(memory + page * page_size);
    if (page % every == 0) {
        uint64_t *wrong = wrong_word(words, page_size, 1);
        if (!wrong)
            return;
        say("wrong %p", (void *)wrong);
        exit(1);
    }
    for (size_t i = 0; i < page_size / sizeof *words; i++)
        if (words[i]) {
            say("wrong %p", (void *)(words + i));
            exit(1);
        }
}

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 64) * huge_page_size();
    every = number_arg(argc, argv, 2, 1, 5);
    int busy = argc > 3 && !strcmp(argv[3], "busy");
    page_size = base_page_size();
    pages = len / page_size;
    memory = map_aligned(len, 1);
    for (size_t page = 0; page < pages; page += every)
        fill_page((uint64_t *)(memory + page * page_size), page_size, 1);
    if (!(argc > 3 && !strcmp(argv[3], "advised")) && madvise(memory, len, MADV_NOHUGEPAGE))
        die("MADV_NOHUGEPAGE");
    int hidden = argc > 3 && !strcmp(argv[3], "hidden");
    if (hidden && mprotect(memory, len, PROT_NONE))
        die("PROT_NONE");
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());

    struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
    size_t rounds = 0;
    if (busy)
        for (; poll(&end, 1, 1) <= 0; rounds++)
            for (size_t page = 0; page < pages; page += every)
                check(page);
    wait_for_end();
    if (hidden && mprotect(memory, len, PROT_READ))
        die("PROT_READ");
    for (size_t page = 0; page < pages; page++)
        check(page);
    say("ok %zu", rounds);
    return 0;
}
