/* A program whose memory grows at a constant rate and is checked at the end.
 *
 * usage: grower [MIB=256] [MIB_PER_SECOND=64]
 *
 *   ready ADDR LEN PID   LEN bytes are mapped and untouched; it waits for a line on stdin
 *   grown MIB            all memory is written, on base pages
 *   ok                   every word is right; exit 0
 *   wrong ADDR           a word is wrong; exit 1 */
#include "victim.h"

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 256) * MIB;
    size_t rate = number_arg(argc, argv, 2, 1, 64);
    size_t page = base_page_size();

    base_pages_only(1);
    uint8_t *memory = map_aligned(len, 0);
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());
    if (!next_line())
        return 0;
    for (size_t at = 0; at < len; at += MIB) {
        fill_all(memory + at, MIB, 1);
        sleep_ms(1000 / rate);
    }
    say("grown %zu", len / MIB);
    for (size_t at = 0; at < len; at += page) {
        uint64_t *wrong = wrong_word((uint64_t *)(memory + at), page, 1);
        if (wrong) {
            say("wrong %p", (void *)wrong);
            return 1;
        }
    }
    say("ok");
    return 0;
}
