/* A program whose threads check and rewrite their memory while they also remap, move, protect,
 * discard and fork it.
 *
 * usage: storm [MIB=512] [THREADS=4] [SEED=1]
 *
 *   ready ADDR LEN PID                    ADDR of the first arena at the start, LEN of all arenas
 *   did WORDS PAGES CHANGES CHILDREN TAKEN
 *                                         once a second: checked words and whole pages, changes of
 *                                         mappings, children that checked their shared pages,
 *                                         lazily freed pages that the kernel took
 *   damaged ADDR want WORD got WORD ...   then exit 1
 *   ok WORDS PAGES CHANGES CHILDREN TAKEN when stdin ends, after a last check of every page; exit 0
 *
 * Memory consists of arenas. The lock of a page permits checking and changing the page, the lock of
 * an arena changing its layout. A word is the pattern of its address and version at the time of the
 * write, so a check detects pages that moved, are old or became zeros. Half of the writes are
 * zeros. */
#include "victim.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#define ARENA (32 * MIB)
/* Steps of a thread between two changes of an arena's layout, on average. */
#define CHANGE_EVERY 3000
#define WORDS_PER_STEP 192
#define PAGES_PER_STEP 6

struct page {
    uint64_t from;    /* the address it was written at */
    uint32_t version; /* 0: zeros */
    uint8_t lazy;     /* MADV_FREE: the whole page may become zeros at any time */
    atomic_flag lock;
};

struct arena {
    pthread_rwlock_t layout;
    uint8_t *start;
    struct page *pages;
    const char *last; /* its last change */
};

struct thread {
    uint64_t random;
    _Atomic uint64_t words, whole, changes, children;
};

static struct arena *arenas;
static struct thread *threads;
static size_t arena_count, thread_count, pages_each, page_size;
static atomic_int stopping;
static _Atomic uint64_t taken;

static uint64_t next_random(struct thread *self)
{
    self->random = self->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return self->random >> 33;
}

static uint64_t *words_of(const struct arena *arena, size_t page)
{
    return (uint64_t *)(arena->start + page * page_size);
}

static uint64_t word_in(const struct page *page, size_t word)
{
    const void *address = (const void *)(uintptr_t)(page->from + word * sizeof(uint64_t));
    return page->version ? pattern_at(address, page->version) : 0;
}

/* Avoids stdio: a thread that does not exist in a child may hold its lock. */
static void damaged(const struct arena *arena, size_t page, size_t word, uint64_t want,
                    uint64_t got)
{
    const struct page *state = &arena->pages[page];
    char text[512];
    int length = snprintf(text, sizeof text,
                          "damaged %p want %016" PRIx64 " got %016" PRIx64 " written at 0x%" PRIx64
                          " in version %" PRIu32 "%s, arena %zu at %p, last change %s, pid %d\n",
                          (void *)(words_of(arena, page) + word), want, got,
                          state->from + word * sizeof(uint64_t), state->version,
                          state->lazy ? ", lazily freed" : "", (size_t)(arena - arenas),
                          (void *)arena->start, arena->last, (int)getpid());
    if (write(STDOUT_FILENO, text, (size_t)length) < 0)
        _exit(3);
    _exit(1);
}

/* Checks one word. Returns 0 if a lazily freed page became zeros: the caller starts it again. */
static int check_word(const struct arena *arena, size_t page, size_t word)
{
    struct page *state = &arena->pages[page];
    uint64_t want = word_in(state, word), got = ((volatile uint64_t *)words_of(arena, page))[word];
    if (got == want)
        return 1;
    if (!state->lazy || got)
        damaged(arena, page, word, want, got);
    state->version = 0;
    state->lazy = 0;
    atomic_fetch_add(&taken, 1);
    return 0;
}

static void check_page(const struct arena *arena, size_t page)
{
    for (size_t word = 0; word < page_size / sizeof(uint64_t);)
        word = check_word(arena, page, word) ? word + 1 : 0;
}

/* Writes every word of a page; version 0 is zeros. */
static void rewrite(const struct arena *arena, size_t page, uint32_t version)
{
    struct page *state = &arena->pages[page];
    state->from = (uintptr_t)words_of(arena, page);
    state->version = version;
    state->lazy = 0;
    for (size_t word = 0; word < page_size / sizeof(uint64_t); word++)
        words_of(arena, page)[word] = word_in(state, word);
}

static uint32_t some_version(struct thread *self)
{
    uint64_t random = next_random(self);
    return random % 2 ? (uint32_t)random | 1 : 0;
}

/* Checks every page. The caller holds the layout's lock. */
static void check_arena(struct thread *self, const struct arena *arena)
{
    for (size_t page = 0; page < pages_each; page++)
        check_page(arena, page);
    atomic_fetch_add(&self->whole, pages_each);
}

static void advise(const struct arena *arena, size_t page, size_t count, int advice,
                   const char *name)
{
    if (madvise(words_of(arena, page), count * page_size, advice))
        die(name);
}

static void become_zeros(const struct arena *arena, size_t page, size_t count)
{
    for (size_t i = page; i < page + count; i++) {
        arena->pages[i].version = 0;
        arena->pages[i].lazy = 0;
    }
}

static void fill(struct thread *self, const struct arena *arena)
{
    for (size_t page = 0; page < pages_each; page++)
        rewrite(arena, page, some_version(self));
}

static void change_protection(struct thread *self, const struct arena *arena, size_t page,
                              size_t count)
{
    uint8_t *start = (uint8_t *)words_of(arena, page);
    if (mprotect(start, count * page_size, PROT_READ))
        die("mprotect");
    for (size_t i = page; i < page + count; i++)
        check_page(arena, i);
    atomic_fetch_add(&self->whole, count);
    if (mprotect(start, count * page_size, PROT_NONE) ||
        mprotect(start, count * page_size, PROT_READ | PROT_WRITE))
        die("mprotect");
}

/* Replaces a mapping twice, never unmapping: another thread's mapping could take the address. */
static void map_again(const struct arena *arena, size_t page, size_t count)
{
    uint8_t *start = (uint8_t *)words_of(arena, page);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(start, count * page_size, PROT_NONE, flags, -1, 0) != start ||
        mmap(start, count * page_size, PROT_READ | PROT_WRITE, flags, -1, 0) != start)
        die("mmap");
    become_zeros(arena, page, count);
}

static void move(struct arena *arena)
{
    uint8_t *to = map_aligned(ARENA, 0);
    if (mremap(arena->start, ARENA, ARENA, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
        die("mremap");
    arena->start = to;
}

/* Starts a child that checks the shared pages, changes some, and checks again while the parent
 * continues. */
static pid_t share(struct thread *self, const struct arena *arena)
{
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child)
        return child;
    for (int round = 0; round < 2; round++) {
        check_arena(self, arena);
        for (int n = 0; n < 64; n++)
            rewrite(arena, next_random(self) % pages_each, some_version(self));
    }
    _exit(0);
}

static void end_child(struct thread *self, pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child)
        die("waitpid");
    if (status) {
        say("damaged: child %d ended with status %#x", (int)child, (unsigned)status);
        _exit(1);
    }
    atomic_fetch_add(&self->children, 1);
}

/* Changes the mapping of an arena. The caller holds the layout's lock; this function releases it
 * before it waits for a child. */
static void change(struct thread *self, struct arena *arena)
{
    size_t page = next_random(self) % pages_each;
    size_t most = next_random(self) % 4 ? 16 : 2048;
    size_t count = 1 + next_random(self) % most;
    if (count > pages_each - page)
        count = pages_each - page;
    pid_t child = 0;
    check_arena(self, arena);
    /* After a fork, each write splits a huge page, so forks are rarest. */
    switch (next_random(self) % 22 / 3) {
    case 0:
        arena->last = "munmap, mmap";
        munmap(arena->start, ARENA);
        arena->start = map_aligned(ARENA, 0);
        fill(self, arena);
        break;
    case 1:
        arena->last = "mremap";
        move(arena);
        break;
    case 2:
        arena->last = "mprotect";
        change_protection(self, arena, page, count);
        break;
    case 3:
        arena->last = "MADV_DONTNEED";
        advise(arena, page, count, MADV_DONTNEED, "MADV_DONTNEED");
        become_zeros(arena, page, count);
        break;
    case 4:
        arena->last = "MADV_FREE";
        advise(arena, page, count, MADV_FREE, "MADV_FREE");
        for (size_t i = page; i < page + count; i++)
            arena->pages[i].lazy = arena->pages[i].version != 0;
        break;
    case 5:
        arena->last = "MAP_FIXED";
        map_again(arena, page, count);
        break;
    case 6:
        arena->last = "MADV_COLD";
        advise(arena, page, count, MADV_COLD, "MADV_COLD");
        break;
    default:
        arena->last = "fork";
        child = share(self, arena);
        break;
    }
    pthread_rwlock_unlock(&arena->layout);
    if (child)
        end_child(self, child);
    atomic_fetch_add(&self->changes, 1);
}

/* Takes the lock of a page if it is free. */
static int try_lock(const struct arena *arena, size_t page)
{
    return !atomic_flag_test_and_set_explicit(&arena->pages[page].lock, memory_order_acquire);
}

static void unlock(const struct arena *arena, size_t page)
{
    atomic_flag_clear_explicit(&arena->pages[page].lock, memory_order_release);
}

/* Checks random words, which a sampler finds hot, and whole pages, most of which it rewrites. */
static void step(struct thread *self, const struct arena *arena)
{
    uint64_t words = 0, whole = 0;
    for (int n = 0; n < WORDS_PER_STEP; n++) {
        uint64_t random = next_random(self);
        size_t page = random % pages_each;
        if (!try_lock(arena, page))
            continue;
        words += (uint64_t)check_word(arena, page, (random >> 20) % (page_size / sizeof(uint64_t)));
        unlock(arena, page);
    }
    for (int n = 0; n < PAGES_PER_STEP; n++) {
        size_t page = next_random(self) % pages_each;
        if (!try_lock(arena, page))
            continue;
        check_page(arena, page);
        whole++;
        if (next_random(self) % 4)
            rewrite(arena, page, some_version(self));
        unlock(arena, page);
    }
    atomic_fetch_add(&self->words, words);
    atomic_fetch_add(&self->whole, whole);
}

static void *work(void *arg)
{
    struct thread *self = arg;
    while (!atomic_load(&stopping)) {
        struct arena *arena = &arenas[next_random(self) % arena_count];
        if (next_random(self) % CHANGE_EVERY == 0) {
            if (pthread_rwlock_trywrlock(&arena->layout) == 0)
                change(self, arena);
        } else if (pthread_rwlock_tryrdlock(&arena->layout) == 0) {
            step(self, arena);
            pthread_rwlock_unlock(&arena->layout);
        }
    }
    return NULL;
}

static void say_sums(const char *first)
{
    uint64_t sums[4] = {0};
    for (size_t t = 0; t < thread_count; t++) {
        sums[0] += threads[t].words;
        sums[1] += threads[t].whole;
        sums[2] += threads[t].changes;
        sums[3] += threads[t].children;
    }
    say("%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, first, sums[0], sums[1],
        sums[2], sums[3], taken);
}

static void make_arenas(size_t len)
{
    arena_count = (len + ARENA - 1) / ARENA;
    page_size = base_page_size();
    pages_each = ARENA / page_size;
    arenas = calloc(arena_count, sizeof *arenas);
    if (!arenas)
        die("calloc");
    for (size_t a = 0; a < arena_count; a++) {
        arenas[a] = (struct arena){.start = map_aligned(ARENA, 0), .last = "mmap"};
        arenas[a].pages = calloc(pages_each, sizeof *arenas[a].pages);
        if (!arenas[a].pages || pthread_rwlock_init(&arenas[a].layout, NULL))
            die("an arena");
        fill(&threads[0], &arenas[a]);
    }
}

int main(int argc, char **argv)
{
    size_t len = number_arg(argc, argv, 1, 1, 512) * MIB;
    thread_count = number_arg(argc, argv, 2, 1, 4);
    size_t seed = number_arg(argc, argv, 3, 0, 1);
    threads = calloc(thread_count, sizeof *threads);
    pthread_t *handles = calloc(thread_count, sizeof *handles);
    if (!threads || !handles)
        die("calloc");
    for (size_t t = 0; t < thread_count; t++)
        threads[t].random = pattern_at((void *)(uintptr_t)t, seed);
    make_arenas(len);
    say("ready %p %zu %d", (void *)arenas[0].start, arena_count * ARENA, (int)getpid());

    for (size_t t = 0; t < thread_count; t++)
        if ((errno = pthread_create(&handles[t], NULL, work, &threads[t])))
            die("pthread_create");
    struct pollfd end = {.fd = STDIN_FILENO, .events = POLLIN};
    while (poll(&end, 1, 1000) <= 0)
        say_sums("did");
    atomic_store(&stopping, 1);
    for (size_t t = 0; t < thread_count; t++)
        pthread_join(handles[t], NULL);
    for (size_t a = 0; a < arena_count; a++)
        check_arena(&threads[0], &arenas[a]);
    say_sums("ok");
    return 0;
}
