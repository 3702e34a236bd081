/* Mappings of every kind that `status` distinguishes. They do not change.
 *
 * usage: layout
 *
 *   part NAME ADDR LEN   for each mapping:
 *     filled       4 huge-page-sized regions, every base page written
 *     sparse       1 region, 16 base pages of it written
 *     nohugepage   1 region, filled, with MADV_NOHUGEPAGE
 *     small        half a region, filled
 *     untouched    1 region, never touched
 *   ready ADDR LEN PID   ADDR and LEN of `filled`
 *
 * PROT_NONE pages between the mappings prevent the kernel from merging them. It then waits for the
 * end of stdin without touching memory. */
#include "victim.h"

static uint8_t *part(const char *name, size_t len)
{
    size_t page = base_page_size();
    uint8_t *memory = map_aligned(len + huge_page_size(), 0);
    uint8_t *fence = memory + len;
    if (mprotect(fence, page, PROT_NONE) || munmap(fence + page, huge_page_size() - page))
        die("fence");
    say("part %s %p %zu", name, (void *)memory, len);
    return memory;
}

int main(void)
{
    size_t huge = huge_page_size(), page = base_page_size();
    base_pages_only(1);
    uint8_t *filled = part("filled", 4 * huge);
    fill_all(filled, 4 * huge, 1);
    uint8_t *sparse = part("sparse", huge);
    for (size_t i = 0; i < 16; i++)
        fill_page((uint64_t *)(sparse + i * (huge / 16)), page, 1);
    uint8_t *nohugepage = part("nohugepage", huge);
    if (madvise(nohugepage, huge, MADV_NOHUGEPAGE))
        die("MADV_NOHUGEPAGE");
    fill_all(nohugepage, huge, 1);
    fill_all(part("small", huge / 2), huge / 2, 1);
    part("untouched", huge);
    base_pages_only(0);
    say("ready %p %zu %d", (void *)filled, 4 * huge, (int)getpid());
    wait_for_end();
    return 0;
}
