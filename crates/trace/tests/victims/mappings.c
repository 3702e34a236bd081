/* Maps a file, and makes 20,000 mappings of it: every second page has no permission. Loads from the
 * first page, often enough that the loads are delivered, and waits a minute for a signal. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define MAPPINGS 20000

int main(int count, char **arguments)
{
    int file = count > 1 ? open(arguments[1], O_RDONLY) : -1;
    char *first = mmap(NULL, MAPPINGS * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    if (first == MAP_FAILED)
        return 1;
    for (size_t at = 1; at < MAPPINGS; at += 2) {
        if (mprotect(first + at * PAGE, PAGE, PROT_NONE) != 0)
            return 2;
    }
    for (int turn = 0; turn < 65536; turn++)
        (void)*(volatile char *)first;
    sleep(60);
    return 3;
}
