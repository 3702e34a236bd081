/* A process whose names attack programs that print them: line breaks, terminal escapes, HTML,
 * invalid UTF-8.
 *
 * usage: hostile_name
 *
 *   ready ADDR LEN PID   ADDR is the start of the mapping with the bad name
 *
 * Its comm can end the field of /proc/PID/stat early. Its /proc/PID/exe, cmdline and maps can break
 * a line, colour a terminal and close a script. It then waits for the end of stdin. */
#include "victim.h"

#include <fcntl.h>

#define HOSTILE "x</script>\n\033[31mred\xff"

/* Executes this program from a memory file with a bad name, without a file on disk. Returns if the
 * system does not permit that; then only `exe` and `cmdline` are harmless. */
static void run_again_from_memory(void)
{
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int copy = memfd_create(HOSTILE, MFD_CLOEXEC);
    if (self < 0 || copy < 0)
        die("copy of itself");
    char buffer[65536];
    for (ssize_t got; (got = read(self, buffer, sizeof buffer)) != 0;) {
        if (got < 0 || write(copy, buffer, (size_t)got) != got)
            die("copy of itself");
    }
    close(self);
    char *const args[] = {"again " HOSTILE, "again", NULL};
    fexecve(copy, args, environ);
    close(copy);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 1)
        run_again_from_memory();
    /* At most 15 bytes; `) R 1` imitates the fields that follow the name. */
    if (prctl(PR_SET_NAME, "a) R 1\n\033[1m\xff</b", 0, 0, 0))
        die("PR_SET_NAME");

    size_t len = huge_page_size();
    int file = memfd_create(HOSTILE, MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)len))
        die("memfd");
    uint8_t *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        die("mmap");
    memset(memory, 1, len); /* Reports sum up small mappings. */
    say("ready %p %zu %d", (void *)memory, len, (int)getpid());
    wait_for_end();
    return 0;
}
