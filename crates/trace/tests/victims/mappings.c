/* Maps a page of a file 20,000 times, loads from the last one, and waits for a signal. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define MAPPINGS 20000
#define FIRST ((char *)0x2000000000)

int main(int count, char **arguments)
{
    int file = count > 1 ? open(arguments[1], O_RDONLY) : -1;
    for (size_t at = 0; at < MAPPINGS; at++) {
        char *wanted = FIRST + at * PAGE;
        if (mmap(wanted, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) != wanted)
            return 1;
    }
    char last = *(volatile char *)(FIRST + (MAPPINGS - 1) * PAGE);
    for (;;)
        pause();
    return last;
}
