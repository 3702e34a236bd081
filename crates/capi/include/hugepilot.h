/* hugepilot: memory on huge pages, for C.
 *
 * A region is memory on the pages that its chain of backings could get, such as "hugetlb-2m,thp,base": pages of a hugetlb
 * pool, else transparent huge pages, else base pages. It tells what was asked for, what the kernel refused and why, and on
 * which pages the memory really is, read from the page map and never assumed. Arenas are built on regions.
 *
 *     hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
 *     options.chain = "hugetlb-2m,thp,base";
 *     hugepilot_region *region = hugepilot_region_map(64 << 20, &options);
 *     if (region == NULL) ...                             hugepilot_last_error_text says why, and what to change
 *     memset(hugepilot_region_data(region), 1, 64 << 20);
 *     hugepilot_region_unmap(region);
 *
 * Sizes are bytes. A function that makes something returns NULL where it cannot; a function that does something returns an
 * error, HUGEPILOT_OK for none. Either way the thread's last error then says what went wrong, in words and with a fix. A
 * call that succeeds leaves it as it is, as errno.
 *
 * Text is written as snprintf does: as much as fits into `size` bytes with a zero at the end; the answer is the length of
 * the whole text. A buffer of no bytes may be NULL.
 *
 * Handles come from malloc, and so do, for a moment, the words of an error; the memory itself comes from the kernel.
 * Nothing here throws. A fault of the library's own ends the process with a message (abort).
 */
#ifndef HUGEPILOT_H
#define HUGEPILOT_H

#include <stddef.h>
#include <stdint.h>

/* The library's name is libhugepilot.so.HUGEPILOT_ABI. The number rises when a program that was compiled before would no
 * longer work; functions, and fields behind the last, may be added without. */
#define HUGEPILOT_ABI 2
/* Of this header. */
#define HUGEPILOT_VERSION "0.1.0"

#if defined(__GNUC__)
#define HUGEPILOT_MUST_USE __attribute__((warn_unused_result))
#else
#define HUGEPILOT_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The library ---------------------------------------------------------------- */

/* HUGEPILOT_ABI of the library that is linked. Any thread. */
uint32_t hugepilot_abi(void);

/* HUGEPILOT_VERSION of the library that is linked. Any thread; valid for ever. */
const char *hugepilot_version(void);

/* ---- Errors --------------------------------------------------------------------- */

typedef enum hugepilot_error {
    HUGEPILOT_OK = 0,
    HUGEPILOT_ARGUMENT = 1,     /* NULL, no bytes, or a number out of its range */
    HUGEPILOT_CHAIN = 2,        /* a text for a chain or for nodes that says nothing */
    HUGEPILOT_OVERFLOW = 3,     /* more bytes than the address space holds, once rounded up to pages */
    HUGEPILOT_ALIGNMENT = 4,    /* no power of two, or more than 1 GiB */
    HUGEPILOT_NAME = 5,         /* not 1 to 79 printable ASCII characters without []\$` */
    HUGEPILOT_LIMIT = 6,        /* the limit of an arena */
    HUGEPILOT_NO_MEMORY = 7,    /* no address space, no mapping more, or malloc has none */
    HUGEPILOT_POOL_EMPTY = 8,   /* too few free pages in the hugetlb pool */
    HUGEPILOT_NO_POOL = 9,      /* this processor or kernel has no pages of that size */
    HUGEPILOT_THP_NEVER = 10,   /* transparent huge pages are set to never */
    HUGEPILOT_THP_DISABLED = 11, /* the same for this process: prctl(PR_SET_THP_DISABLE) */
    HUGEPILOT_ADVICE = 12,      /* the kernel is too old for the backing */
    HUGEPILOT_NODES = 13,       /* memory nodes that are not there or have no memory */
    HUGEPILOT_BIND = 14,        /* the kernel does not let this process have memory of these nodes */
    HUGEPILOT_PREFAULT = 15,    /* mapped, but there are no pages for it */
    HUGEPILOT_PAGEMAP = 16,        /* the page map cannot be read: Linux before 6.7, or no /proc */
    HUGEPILOT_OTHER = 17        /* an error of a later library */
} hugepilot_error;

/* What a number means, without the particulars of a case. Any thread; valid for ever. */
const char *hugepilot_error_text(hugepilot_error error);

/* The last error of this thread; HUGEPILOT_OK before the first. */
hugepilot_error hugepilot_last_error(void);

/* What the kernel answered then, as in errno.h; 0 where it was not asked. */
int hugepilot_last_errno(void);

/* The last error of this thread in words: the cause, and after a semicolon the fix where there is one. */
size_t hugepilot_last_error_text(char *buffer, size_t size);

/* Forgets the last error of this thread. */
void hugepilot_clear_error(void);

/* ---- What is asked for ---------------------------------------------------------- */

/* What a process made by fork sees of the memory. A program started by exec never sees any of it. */
enum hugepilot_fork {
    /* The same contents, copied page by page when either writes. On a hugetlb pool the pages set aside are the parent's:
     * where the pool has no more, it is the child that gets SIGBUS. */
    HUGEPILOT_FORK_INHERIT = 0,
    /* Nothing: touching the addresses is SIGSEGV there, and the child must leave the handle alone, because the addresses
     * may be something else's by then. Saves the copying of page tables. */
    HUGEPILOT_FORK_ABSENT = 1
};

/* Begin with HUGEPILOT_OPTIONS_INIT, or pass NULL for all defaults. The texts are read before a call returns. */
typedef struct hugepilot_options {
    size_t size;         /* sizeof(hugepilot_options), by which the library knows the header */
    const char *chain;   /* backings in the order to try them, each once; NULL: "thp,base".
                          *   hugetlb-2m, hugetlb-1g   pages of a pool, set aside at once; lengths are rounded up to them
                          *   thp                      transparent huge pages, as far as the kernel finds free ones
                          *   thp:30%, thp:20-50%      the same for a part of the memory
                          *   collapse, collapse:30%   base pages, until hugepilot_region_collapse
                          *   base                     base pages, whatever the system is set to */
    size_t align_bytes;  /* a power of two up to 1 GiB; that of the pages in any case; 0: that */
    const char *name;    /* shown in /proc/PID/maps as [anon:NAME]; not for pools; NULL: none */
    const char *numa;    /* "bind:0-1", "interleave:0-3,5"; NULL: as the thread that touches it is set.
                          *   Memory on a pool that is bound is prefaulted at once. */
    int fork;            /* enum hugepilot_fork */
} hugepilot_options;

#define HUGEPILOT_OPTIONS_INIT {sizeof(hugepilot_options), NULL, 0, NULL, NULL, HUGEPILOT_FORK_INHERIT}

/* ---- What is got ---------------------------------------------------------------- */

/* Bytes by what is behind them; they add up to the whole. */
typedef struct hugepilot_usage {
    uint64_t base_bytes;       /* base pages, or huge ones smaller than one entry of the next level maps (mTHP) */
    uint64_t thp_bytes;        /* transparent huge pages */
    uint64_t hugetlb_2m_bytes; /* pages of the pool of 2 MiB */
    uint64_t hugetlb_1g_bytes; /* pages of the pool of 1 GiB */
    uint64_t zero_bytes;       /* the shared zero page: read, but never written */
    uint64_t swapped_bytes;
    uint64_t untouched_bytes;  /* pages of a pool are set aside all the same */
} hugepilot_usage;

/* What became of a collapse, as a look afterwards showed. */
typedef struct hugepilot_collapse_outcome {
    uint64_t before_bytes;  /* on huge pages before */
    uint64_t after_bytes;   /* on huge pages afterwards */
    uint64_t empty_bytes;   /* huge pages' worth that nobody had touched, left alone */
    uint64_t refused_bytes; /* huge pages' worth that the kernel refused */
    int last_errno;         /* its last reason; 0: none was refused */
} hugepilot_collapse_outcome;

/* ---- Regions -------------------------------------------------------------------- */

/* One handle may be read by several threads at once; only grow and unmap need it alone. The memory is zeroed at first, and
 * is the caller's to order between threads. */
typedef struct hugepilot_region hugepilot_region;

/* Maps at least `size` bytes on the first backing of the chain that is to be had. Nothing is resident until touched or
 * prefaulted, but for pages of a pool bound to nodes. 2 to 30 us. `options` may be NULL.
 * NULL: ARGUMENT, CHAIN, OVERFLOW, ALIGNMENT, NAME, NODES for what is wrong on any backing; where each is refused, the
 * reason of the last: POOL_EMPTY, NO_POOL, THP_NEVER, THP_DISABLED, ADVICE, BIND, PREFAULT, NO_MEMORY. */
HUGEPILOT_MUST_USE hugepilot_region *hugepilot_region_map(size_t size, const hugepilot_options *options);

/* Unmaps the memory. NULL is allowed. */
void hugepilot_region_unmap(hugepilot_region *region);

/* The first byte, until the region grows or is unmapped. NULL for NULL. */
void *hugepilot_region_data(const hugepilot_region *region);

/* Bytes there are: those asked for, rounded up to the pages of the backing. 0 for NULL. */
size_t hugepilot_region_size(const hugepilot_region *region);

/* 1 if the memory shows under its name; 0 if none was asked for, or the kernel takes none. */
int hugepilot_region_named(const hugepilot_region *region);

/* The chain asked for, as text. */
size_t hugepilot_region_requested(const hugepilot_region *region, char *buffer, size_t size);

/* The backing that was to be had, as text. That THP is allowed does not mean that there was a free huge page: see got. */
size_t hugepilot_region_backing(const hugepilot_region *region, char *buffer, size_t size);

/* Why backing number `index` of the chain, from 0, was passed over: its error, and in words with the fix.
 * HUGEPILOT_OK, with nothing written, from the backing on that was taken. */
hugepilot_error hugepilot_region_refused(const hugepilot_region *region, size_t index, char *buffer, size_t size);

/* Looks up in the page map on which pages the memory is, now; no page is touched. About 30 us a GiB of huge pages, 10 ms a
 * GiB of base pages. Errors: ARGUMENT for NULL, LOOK. */
hugepilot_error hugepilot_region_usage(const hugepilot_region *region, hugepilot_usage *got);

/* Makes all pages resident, by that many threads (0 is 1); then collapses, if that is the backing. Contents stay. 0.1 to
 * 0.3 s a GiB. Errors: ARGUMENT for NULL, PREFAULT (ENOMEM where memory is used up, EFAULT where a pool is, EINVAL before
 * Linux 5.14), LOOK after a collapse. Pages that were there by then stay. */
hugepilot_error hugepilot_region_prefault(const hugepilot_region *region, unsigned threads);

/* Puts what has been touched, and is not huge, on huge pages. 0.4 to 1 ms a huge page. `collapsed` may be NULL. What the
 * kernel refuses is counted there, and is no error. Errors: ARGUMENT for NULL, LOOK. */
hugepilot_error hugepilot_region_collapse(const hugepilot_region *region, hugepilot_collapse_outcome *collapsed);

/* Makes it at least `size` bytes long. Its first `keep_bytes` bytes keep their contents, what is new reads as zero, and the
 * memory may move. Moves page tables, 0.2 ms a GiB, but on a pool, with THP for a part, or an alignment above base pages:
 * there it maps anew and copies. Errors: as for map; then all is as before. For one thread at a time. */
HUGEPILOT_MUST_USE hugepilot_error hugepilot_region_grow(hugepilot_region *region, size_t size, size_t keep_bytes);

/* ---- Arenas --------------------------------------------------------------------- */

/* Hands out memory front to back, from regions that it maps as they are needed. Nothing is freed alone. For one thread at
 * a time. */
typedef struct hugepilot_arena hugepilot_arena;

/* An arena that maps regions of at least `chunk_bytes`, and no more than `limit_bytes` in all; 0 is no limit. Maps nothing
 * yet. `options` may be NULL. NULL: ARGUMENT, CHAIN, NAME, NO_MEMORY. */
HUGEPILOT_MUST_USE hugepilot_arena *hugepilot_arena_new(size_t chunk_bytes, size_t limit_bytes,
                                                        const hugepilot_options *options);

/* Unmaps all. NULL is allowed. */
void hugepilot_arena_delete(hugepilot_arena *arena);

/* `size` bytes at a multiple of `align`, with whatever is in them, until the arena is reset or deleted. No bytes are a
 * pointer that is not NULL and is not to be touched. NULL: ARGUMENT, OVERFLOW, ALIGNMENT, LIMIT, and as for map. */
HUGEPILOT_MUST_USE void *hugepilot_arena_alloc(hugepilot_arena *arena, size_t size, size_t align);

/* Takes all memory back, for new use; it stays mapped. NULL is allowed. */
void hugepilot_arena_reset(hugepilot_arena *arena);

/* Bytes mapped. 0 for NULL. */
size_t hugepilot_arena_mapped(const hugepilot_arena *arena);

/* As hugepilot_region_usage, over all that is mapped. */
hugepilot_error hugepilot_arena_usage(const hugepilot_arena *arena, hugepilot_usage *got);

/* ---- Heaps ---------------------------------------------------------------------- */

/* Memory for things of any size that are freed one by one: small ones by size classes, so that many share a huge page,
 * large ones on whole pages of their own. Any thread may allocate, and free what another did, at any time. After fork the
 * child may go on with its copy, also where the parent had other threads. */
typedef struct hugepilot_heap hugepilot_heap;

/* What a heap has. Exact while no other thread uses it. */
typedef struct hugepilot_stats {
    uint64_t allocated_bytes; /* in use, as the sizes of the classes and large things that were given */
    uint64_t held_bytes;      /* these, and what is free in between */
    uint64_t idle_bytes;      /* free in whole huge pages, kept for new use */
    uint64_t returned_bytes;  /* given back to the kernel since the heap began */
    uint64_t mapped_bytes;    /* addresses; without pages before the first touch, except that pools set them aside */
} hugepilot_stats;

/* A heap of its own. Maps nothing yet. `options` may be NULL; children have the memory, whatever `fork` says there. NULL: ARGUMENT, CHAIN, NAME, NO_MEMORY. */
HUGEPILOT_MUST_USE hugepilot_heap *hugepilot_heap_new(const hugepilot_options *options);

/* The two heaps of the process, for the allocators of hugepilot.hpp: on "thp,base", and on "hugetlb-2m" alone. Never NULL,
 * and never to be deleted. */
hugepilot_heap *hugepilot_heap_thp(void);
hugepilot_heap *hugepilot_heap_hugetlb(void);

/* Unmaps all. No thread may be using the heap or what came from it. NULL is allowed. */
void hugepilot_heap_delete(hugepilot_heap *heap);

/* `size` bytes at a multiple of `align`, a power of two up to 1 GiB, with whatever is in them. No bytes are as one.
 * NULL: ARGUMENT, OVERFLOW, ALIGNMENT, and as for hugepilot_region_map. */
HUGEPILOT_MUST_USE void *hugepilot_heap_alloc(hugepilot_heap *heap, size_t size, size_t align);

/* Makes memory of this heap `size` bytes long, in place or elsewhere, and keeps what is in it as far as it fits. NULL for
 * `memory` is as alloc. NULL: as for alloc; then all is as before. */
HUGEPILOT_MUST_USE void *hugepilot_heap_realloc(hugepilot_heap *heap, void *memory, size_t size, size_t align);

/* Takes memory back that came from this heap. NULL is allowed. */
void hugepilot_heap_free(hugepilot_heap *heap, void *memory);

/* Gives back to the kernel what is free in whole huge pages; how many bytes. A heap does so by itself above 32 MiB, or an
 * eighth of what is in use where that is more. 0 for NULL. */
size_t hugepilot_heap_trim(hugepilot_heap *heap);

/* Counts what there is, some 100 ns a span of 64 KiB. Errors: ARGUMENT for NULL. */
hugepilot_error hugepilot_heap_stats(const hugepilot_heap *heap, hugepilot_stats *stats);

/* As hugepilot_region_usage, over all that is mapped. */
hugepilot_error hugepilot_heap_usage(const hugepilot_heap *heap, hugepilot_usage *got);

#ifdef __cplusplus
}
#endif

#endif
