/* Two mappings of files on a tmpfs of its own, which is mounted on /tmp for this process alone.
 *
 * usage: tmpfs WORD     the mount option `huge`
 *
 *   part NAME OLD FRESH   addresses of two mappings of 2 huge-page-sized regions each:
 *     plain        without advice
 *     advised      with MADV_HUGEPAGE
 *   ready ADDR LEN PID    ADDR and LEN of OLD of `plain`, whose pages are base pages
 *   touched               after a line on stdin: every FRESH was written
 *
 * It requires CAP_SYS_ADMIN. */
#include "victim.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

static uint8_t *map_file(const char *path, size_t len, int advised)
{
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 || ftruncate(file, (off_t)len))
        die(path);
    uint8_t *memory = map_aligned(len, 0);
    if (mmap(memory, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
        die("mmap");
    if (advised && madvise(memory, len, MADV_HUGEPAGE))
        die("MADV_HUGEPAGE");
    close(file);
    return memory;
}

int main(int argc, char **argv)
{
    size_t len = 2 * huge_page_size();
    char options[64];
    snprintf(options, sizeof options, "size=64m,huge=%s", argc > 1 ? argv[1] : "never");
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/tmp", "tmpfs", 0, options))
        die("mount");
    uint8_t *old[2], *fresh[2];
    base_pages_only(1);
    for (int part = 0; part < 2; part++) {
        old[part] = map_file(part ? "/tmp/old_advised" : "/tmp/old_plain", len, part);
        fresh[part] = map_file(part ? "/tmp/fresh_advised" : "/tmp/fresh_plain", len, part);
        fill_all(old[part], len, 1);
        say("part %s %p %p", part ? "advised" : "plain", (void *)old[part], (void *)fresh[part]);
    }
    base_pages_only(0);
    say("ready %p %zu %d", (void *)old[0], len, (int)getpid());
    while (next_line()) {
        fill_all(fresh[0], len, 1);
        fill_all(fresh[1], len, 1);
        say("touched");
    }
    return 0;
}
