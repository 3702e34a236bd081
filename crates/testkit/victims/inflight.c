/* A program that zeroes, writes and collapses its pages while the disk writes to them, and detects
 * damage. It reads a file into the pages past the page cache.
 *
 * usage: inflight direct|uring FILE [MIB=64]
 *
 *   direct   two threads read with O_DIRECT
 *   uring    16 reads in flight, with O_DIRECT; registered buffers pin the lower half of the memory
 *
 *   ready ADDR LEN PID | unable WHY
 *   damaged ADDR want WORD got WORD version N        then exit 1
 *   ok ROUNDS READS      when stdin ends, after one last check of every page; exit 0
 *
 * FILE is created and removed at once. */
#include "pages.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>

enum { GROUP = 8, BLOCKS = 256, DEPTH = 16 };
static const uint64_t FILE_VERSION = 7;
static int file;
static atomic_size_t reads;

/* Expected content of a page read from `block`; every second block is zeros. */
static struct content content_of(size_t block)
{
    return (struct content){.from = block * page_size, .version = block % 2 ? FILE_VERSION : 0};
}

static void make_file(const char *name)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    uint64_t *page = malloc(page_size);
    if (fd < 0 || !page)
        unable(name);
    for (size_t block = 0; block < BLOCKS + GROUP; block++) {
        for (size_t i = 0; i < page_size / sizeof *page; i++)
            page[i] = word_in(content_of(block), i);
        if (write(fd, page, page_size) != (ssize_t)page_size)
            unable(name);
    }
    free(page);
    if (fsync(fd))
        unable("fsync");
    close(fd);
    file = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
    int failed = file < 0 || pread(file, memory, page_size, 0) != (ssize_t)page_size;
    unlink(name);
    if (failed)
        unable("O_DIRECT");
}

/* Records and checks `count` pages, from `page` on, that were read from `block` on. */
static void arrived(size_t page, size_t block, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        contents[page + i] = content_of(block + i);
        check(page + i);
    }
    atomic_fetch_add(&reads, 1);
}

static void check_and_churn(size_t group, uint64_t *state, int last)
{
    for (size_t page = group * GROUP; page < (group + 1) * GROUP; page++) {
        check(page);
        if (!last)
            churn_page(page, state);
    }
}

/* `direct`: each thread has every second group of pages. */
static void *read_directly(void *arg)
{
    size_t thread = (size_t)(uintptr_t)arg, rounds = 0;
    uint64_t state = thread + 1;
    for (int last = 0; !last; rounds++) {
        last = atomic_load(&stopping);
        for (size_t group = thread; group < pages / GROUP; group += 2) {
            check_and_churn(group, &state, last);
            if (last || next_random(&state) % 4)
                continue;
            size_t count = 1 + next_random(&state) % GROUP, block = next_random(&state) % BLOCKS;
            size_t len = count * page_size;
            off_t offset = (off_t)(block * page_size);
            if (pread(file, words_of(group * GROUP), len, offset) != (ssize_t)len)
                die("pread");
            arrived(group * GROUP, block, count);
        }
        if (!last)
            collapse(thread, 2);
    }
    return (void *)(uintptr_t)rounds;
}

/* The submission and completion rings of io_uring. */
static struct {
    int fd;
    _Atomic unsigned *sq_tail, *cq_head, *cq_tail;
    unsigned *sq_mask, *sq_array, *cq_mask;
    struct io_uring_sqe *entries;
    struct io_uring_cqe *completions;
} ring;

/* Reads in flight; `count` is 0 in a free slot. */
static struct {
    size_t page, block, count;
} slots[DEPTH];
static uint8_t *in_flight; /* by group */

static void *map_ring(size_t len, uint64_t offset)
{
    int flags = MAP_SHARED | MAP_POPULATE;
    void *mapped = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, ring.fd, (off_t)offset);
    if (mapped == MAP_FAILED)
        die("mmap of a ring");
    return mapped;
}

static void make_ring(void)
{
    struct io_uring_params p = {0};
    ring.fd = (int)syscall(SYS_io_uring_setup, DEPTH, &p);
    if (ring.fd < 0)
        unable("io_uring_setup");
    uint8_t *sq = map_ring(p.sq_off.array + p.sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    size_t cq_len = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    uint8_t *cq = map_ring(cq_len, IORING_OFF_CQ_RING);
    ring.entries = map_ring(p.sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    ring.sq_tail = (_Atomic unsigned *)(sq + p.sq_off.tail);
    ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    ring.sq_array = (unsigned *)(sq + p.sq_off.array);
    ring.cq_head = (_Atomic unsigned *)(cq + p.cq_off.head);
    ring.cq_tail = (_Atomic unsigned *)(cq + p.cq_off.tail);
    ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    ring.completions = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    struct iovec lower_half = {.iov_base = memory, .iov_len = pages / 2 * page_size};
    if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &lower_half, 1))
        unable("IORING_REGISTER_BUFFERS");
}

static void submit(size_t slot, size_t group, uint64_t *state)
{
    size_t page = group * GROUP;
    size_t count = 1 + next_random(state) % GROUP, block = next_random(state) % BLOCKS;
    unsigned tail = atomic_load_explicit(ring.sq_tail, memory_order_relaxed);
    unsigned index = tail & *ring.sq_mask;
    ring.entries[index] = (struct io_uring_sqe){
        .opcode = page < pages / 2 ? IORING_OP_READ_FIXED : IORING_OP_READ,
        .fd = file,
        .addr = (uintptr_t)words_of(page),
        .len = (unsigned)(count * page_size),
        .off = block * page_size,
        .user_data = slot,
    };
    ring.sq_array[index] = index;
    slots[slot].page = page;
    slots[slot].block = block;
    slots[slot].count = count;
    in_flight[group] = 1;
    atomic_store_explicit(ring.sq_tail, tail + 1, memory_order_release);
    if (syscall(SYS_io_uring_enter, ring.fd, 1, 0, 0, NULL, 0) != 1)
        die("io_uring_enter");
}

/* Handles completed reads; if `wait`, waits for at least one. */
static void reap(int wait)
{
    if (wait && syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        die("io_uring_enter");
    unsigned head = atomic_load_explicit(ring.cq_head, memory_order_relaxed);
    for (; head != atomic_load_explicit(ring.cq_tail, memory_order_acquire); head++) {
        struct io_uring_cqe done = ring.completions[head & *ring.cq_mask];
        size_t slot = (size_t)done.user_data, page = slots[slot].page, count = slots[slot].count;
        if (done.res != (int)(count * page_size)) {
            errno = done.res < 0 ? -done.res : EIO;
            die("a read of the ring");
        }
        arrived(page, slots[slot].block, count);
        slots[slot].count = 0;
        in_flight[page / GROUP] = 0;
    }
    atomic_store_explicit(ring.cq_head, head, memory_order_release);
}

static size_t free_slot(void)
{
    for (;;) {
        for (size_t slot = 0; slot < DEPTH; slot++)
            if (slots[slot].count == 0)
                return slot;
        reap(1);
    }
}

/* `uring`: one thread, which uses other groups while reads are in flight. */
static void *read_by_ring(void *arg)
{
    size_t rounds = 0;
    uint64_t state = 1;
    (void)arg;
    for (; !atomic_load(&stopping); rounds++) {
        for (size_t group = 0; group < pages / GROUP; group++) {
            reap(0);
            if (!in_flight[group])
                check_and_churn(group, &state, 0);
            size_t target = next_random(&state) % (pages / GROUP);
            size_t slot = free_slot();
            if (next_random(&state) % 4 == 0 && !in_flight[target])
                submit(slot, target, &state);
        }
        collapse(0, 1);
    }
    for (size_t slot = 0; slot < DEPTH; slot++)
        while (slots[slot].count)
            reap(1);
    for (size_t group = 0; group < pages / GROUP; group++)
        check_and_churn(group, &state, 1);
    return (void *)(uintptr_t)rounds;
}

int main(int argc, char **argv)
{
    int uring = argc > 2 && !strcmp(argv[1], "uring");
    if (argc < 3 || (!uring && strcmp(argv[1], "direct"))) {
        errno = EINVAL;
        die("usage");
    }
    make_pages(number_arg(argc, argv, 3, 4, 64) * MIB);
    make_file(argv[2]);
    in_flight = calloc(pages / GROUP, 1);
    if (!in_flight)
        die("calloc");
    if (uring)
        make_ring();
    say("ready %p %zu %d", (void *)memory, pages * page_size, (int)getpid());

    size_t least = uring ? rounds_of(1, read_by_ring, wait_for_end)
                         : rounds_of(2, read_directly, wait_for_end);
    say("ok %zu %zu", least, atomic_load(&reads));
    return 0;
}
