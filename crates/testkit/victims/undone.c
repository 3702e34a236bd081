/* A program whose memory has an obstacle to huge pages, which it removes on request.
 *
 * usage: undone KIND [MIB=32]
 *
 *   KIND: forbidden   MADV_NOHUGEPAGE; then MADV_HUGEPAGE
 *         guards      a guard page in each 512 KiB (MADV_GUARD_INSTALL); then one in each 4 MiB
 *         watched     registered with userfaultfd; then UFFDIO_UNREGISTER
 *         sparse      100 base pages of each region are touched; then all are
 *         forked      a child shares it since a fork; then the child ends
 *         parted      a child shares it since a fork, but for 100 base pages of each region
 *         cut         a shared file that ends within the first region; then with the last
 *         plain       none
 *         swapped     MADV_PAGEOUT, but for 100 base pages of each region; then all are written
 *
 *   ready ADDR LEN PID   the memory is on base pages
 *   undone               after a line on stdin; it ends with stdin, exit 0
 *   missing WHAT         the kernel lacks it; exit 0 */
#include "victim.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#define GUARD_EVERY ((size_t)512 << 10)
#define FEW 100

static const char *kind;
static uint8_t *memory;
static size_t size, page;
static int file = -1;
static pid_t child;

static int is(const char *name)
{
    return !strcmp(kind, name);
}

static void must(int failed, const char *what)
{
    if (failed) {
        say("missing %s", what);
        exit(0);
    }
}

/* Writes base pages of each region: the first, as many as given. */
static void touch(size_t pages)
{
    for (size_t at = 0; at < size; at += page)
        if (at % huge_page_size() / page < pages)
            memory[at] = (uint8_t)(1 + at / page % 251);
}

static void watch(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register all = {.range = {(uintptr_t)memory, size},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    file = (int)syscall(__NR_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    must(file < 0 || ioctl(file, UFFDIO_API, &api) || ioctl(file, UFFDIO_REGISTER, &all),
         "userfaultfd");
}

static void share(void)
{
    child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
}

static void begin(void)
{
    if (is("forbidden"))
        must(madvise(memory, size, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
    if (is("guards"))
        for (size_t at = 0; at < size; at += GUARD_EVERY)
            must(madvise(memory + at, page, 102 /* MADV_GUARD_INSTALL */), "MADV_GUARD_INSTALL");
    if (is("watched"))
        watch();
    if (is("forked") || is("parted"))
        share();
    if (is("parted"))
        touch(FEW);
    if (is("swapped")) {
        must(madvise(memory, size, 21 /* MADV_PAGEOUT */), "MADV_PAGEOUT");
        touch(FEW);
    }
}

static void undo(void)
{
    struct uffdio_range all = {(uintptr_t)memory, size};
    if (is("forbidden"))
        must(madvise(memory, size, MADV_HUGEPAGE), "MADV_HUGEPAGE");
    if (is("guards"))
        for (size_t at = 0; at < size; at += GUARD_EVERY)
            if (at % (8 * GUARD_EVERY) && madvise(memory + at, page, 103 /* MADV_GUARD_REMOVE */))
                die("MADV_GUARD_REMOVE");
    if (is("watched") && ioctl(file, UFFDIO_UNREGISTER, &all))
        die("UFFDIO_UNREGISTER");
    if (is("forked")) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (is("cut") && ftruncate(file, (off_t)size))
        die("ftruncate");
    if (is("sparse") || is("cut") || is("swapped"))
        touch(huge_page_size() / page);
}

int main(int argc, char **argv)
{
    kind = argc > 1 ? argv[1] : "forbidden";
    page = base_page_size();
    size = number_arg(argc, argv, 2, 2, 32) * MIB;
    base_pages_only(1);
    memory = map_aligned(size, 0);
    if (is("cut")) {
        file = memfd_create("undone", 0);
        int flags = MAP_SHARED | MAP_FIXED;
        size_t first = huge_page_size() / 2;
        if (file < 0 || ftruncate(file, (off_t)first) ||
            mmap(memory, size, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED)
            die("file");
        for (size_t at = 0; at < first; at += page)
            memory[at] = 1;
    } else {
        touch(is("sparse") ? FEW : huge_page_size() / page);
    }
    base_pages_only(0);
    begin();
    say("ready %p %zu %d", (void *)memory, size, (int)getpid());
    if (next_line()) {
        undo();
        say("undone");
        wait_for_end();
    }
    return 0;
}
