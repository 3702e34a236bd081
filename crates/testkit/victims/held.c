/* A program that builds memory on huge pages and frees most of each: each huge page is held whole.
 *
 * usage: held [HUGE_PAGES=64] [KEPT=1]
 *
 *   ready ADDR LEN PID   KEPT base pages of each huge page are left
 *   ok 0                 at the end of stdin, after a check of the kept pages; exit 0
 *   wrong ADDR           a word is wrong; exit 1 */
#include "victim.h"

int main(int argc, char **argv)
{
    size_t page = base_page_size(), huge = huge_page_size();
    size_t count = number_arg(argc, argv, 1, 1, 64), kept = number_arg(argc, argv, 2, 1, 1) * page;
    uint8_t *memory = map_aligned(count * huge, 1);
    fill_all(memory, count * huge, 1);
    for (size_t i = 0; i < count; i++)
        if (madvise(memory + i * huge + kept, huge - kept, MADV_DONTNEED))
            die("MADV_DONTNEED");
    /* Else khugepaged would collapse them again. */
    if (madvise(memory, count * huge, MADV_NOHUGEPAGE))
        die("MADV_NOHUGEPAGE");
    say("ready %p %zu %d", (void *)memory, count * huge, (int)getpid());

    for (char byte; read(STDIN_FILENO, &byte, 1) > 0;)
        continue;
    for (size_t at = 0; at < count * huge; at += page) {
        uint64_t *wrong = at % huge < kept ? wrong_word((uint64_t *)(memory + at), page, 1) : NULL;
        if (wrong) {
            say("wrong %p", (void *)wrong);
            return 1;
        }
    }
    say("ok 0");
    return 0;
}
