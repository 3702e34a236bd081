/* Maps arrays, and unmaps and moves some before it maps others. Loads from each page of array N,
 * from 1, N * 10 times. One call of munmap fails. Prints a line for each: its pages, those of its
 * mapping, and its place there. */

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#define PAGE 4096
#define COUNT 7

struct array {
    volatile char *start;
    size_t pages;
};

static struct array arrays[COUNT];

static char *map(size_t pages, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    return mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
}

static void print(const struct array *array)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    uintptr_t start, end, at = (uintptr_t)array->start;
    char line[4096];
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= at && at < end)
            printf("%zu %zu %zu\n", array->pages, (end - start) / PAGE, (at - start) / PAGE);
    fclose(maps);
}

int main(void)
{
    /* The C library maps less under QEMU. This keeps its memory apart. */
    mmap(NULL, 256 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* All are smaller than a huge page: some versions of Linux align larger ones. */
    char *offsets = map(400, 0);
    arrays[0] = (struct array){ map(500, 0), 500 };
    arrays[1] = (struct array){ map(400, 0), 400 };
    munmap(offsets, 400 * PAGE);
    /* The hole holds the first of these only. */
    arrays[2] = (struct array){ map(201, 0), 201 };
    arrays[3] = (struct array){ map(202, 0), 202 };
    char *grown = map(100, 0);
    for (int i = 0; i < 100; i++)
        grown[i * PAGE] = 1;
    arrays[4] = (struct array){ mremap(grown, 100 * PAGE, 450 * PAGE, MREMAP_MAYMOVE), 450 };
    arrays[5] = (struct array){ map(300, MAP_NORESERVE), 300 };
    /* The end of what the moved one left. */
    arrays[6] = (struct array){ map(70, 0), 70 };
    /* More than a process has: it fails, and unmaps nothing. */
    if (munmap(offsets, 1ul << 50) == 0)
        return 1;
    for (int n = 0; n < COUNT; n++)
        for (size_t page = 0; page < arrays[n].pages; page++)
            for (int i = 0; i < (n + 1) * 10; i++)
                (void)arrays[n].start[page * PAGE + 0x123];
    for (int n = 0; n < COUNT; n++)
        print(&arrays[n]);
    return 0;
}
