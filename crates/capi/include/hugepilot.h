/* hugepilot: memory on huge pages, for C.
 *
 * A region is memory on the first available backing of a chain. The chain "hugetlb-2m,thp,base"
 * means pages of a hugetlb pool, else transparent huge pages (THP), else base pages. A region
 * reports the requested chain, each refused backing with its cause, and the pages in use, which are
 * read from the pagemap and never assumed. Arenas and heaps allocate from regions.
 *
 *     hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
 *     options.chain = "hugetlb-2m,thp,base";
 *     hugepilot_region *region = hugepilot_region_map(64 << 20, &options);
 *     if (region == NULL) ...                    see hugepilot_last_error_text
 *     memset(hugepilot_region_data(region), 1, 64 << 20);
 *     hugepilot_region_unmap(region);
 *
 * Sizes. All sizes are in bytes.
 *
 * Errors. A function that returns a pointer returns NULL on failure. A function that acts returns a
 * hugepilot_error, HUGEPILOT_OK on success. Either way a failure sets the last error of the thread:
 * a code, the errno of the kernel, and a text with the cause and a suggested fix. Success leaves
 * the last error unchanged, like errno. "Errors:" below lists codes without their prefix
 * HUGEPILOT_.
 *
 * Text. Text is written like snprintf: at most `size` bytes including the final zero. The result is
 * the length of the whole text. If `size` is 0, `buffer` may be NULL.
 *
 * Threads. Any thread may call any function at any time, on different handles. Each section states
 * what threads may do with one handle at the same time.
 *
 * Memory. Handles come from malloc, as does the text of an error while it is formatted. All other
 * memory comes from the kernel. No function throws. A defect of the library ends the process with a
 * message (abort).
 */
#ifndef HUGEPILOT_H
#define HUGEPILOT_H

#include <stddef.h>
#include <stdint.h>

/* Number of the binary interface; the library is libhugepilot.so.HUGEPILOT_ABI. It rises if a
 * program compiled before would no longer work. New functions, and new fields at the end of
 * hugepilot_options, do not raise it. */
#define HUGEPILOT_ABI 2
/* Version of this header. */
#define HUGEPILOT_VERSION "0.1.0"

#if defined(__GNUC__)
#define HUGEPILOT_MUST_USE __attribute__((warn_unused_result))
#else
#define HUGEPILOT_MUST_USE
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Library ----------------------------------------------------------------------------- */

/* Returns HUGEPILOT_ABI of the linked library. */
uint32_t hugepilot_abi(void);

/* Returns HUGEPILOT_VERSION of the linked library, a static string. */
const char *hugepilot_version(void);

/* ---- Errors ------------------------------------------------------------------------------ */

/* Cause of a failure. */
typedef enum hugepilot_error {
    HUGEPILOT_OK = 0,
    HUGEPILOT_ARGUMENT = 1,      /* NULL, a size of 0, or a number out of its range */
    HUGEPILOT_CHAIN = 2,         /* the text of a chain or of NUMA nodes cannot be parsed */
    HUGEPILOT_OVERFLOW = 3,      /* the size, rounded up to pages, exceeds the address space */
    HUGEPILOT_ALIGNMENT = 4,     /* the alignment is not a power of two, or above 1 GiB */
    HUGEPILOT_NAME = 5,          /* not 1 to 79 printable ASCII characters without []\$` */
    HUGEPILOT_LIMIT = 6,         /* the limit of an arena is reached */
    HUGEPILOT_NO_MEMORY = 7,     /* no address space, no mapping left, or malloc failed */
    HUGEPILOT_POOL_EMPTY = 8,    /* the hugetlb pool has too few free pages */
    HUGEPILOT_NO_POOL = 9,       /* this processor or kernel has no pages of that size */
    HUGEPILOT_THP_NEVER = 10,    /* THP is set to never */
    HUGEPILOT_THP_DISABLED = 11, /* THP is disabled for this process: PR_SET_THP_DISABLE */
    HUGEPILOT_ADVICE = 12,       /* this kernel does not support the backing */
    HUGEPILOT_NODES = 13,        /* NUMA nodes do not exist or have no memory */
    HUGEPILOT_BIND = 14,         /* the kernel refuses to bind memory to these nodes */
    HUGEPILOT_PREFAULT = 15,     /* the memory is mapped, but its pages cannot be allocated */
    HUGEPILOT_PAGEMAP = 16,      /* the pagemap cannot be read: Linux before 6.7, or no /proc */
    HUGEPILOT_OTHER = 17,        /* an error of a later library */
    HUGEPILOT_POOL_LIMIT = 18    /* the cgroup does not grant these pages of the hugetlb pool */
} hugepilot_error;

/* Returns a description of an error code, a static string. */
const char *hugepilot_error_text(hugepilot_error error);

/* Returns the last error of this thread; HUGEPILOT_OK if it had none. */
hugepilot_error hugepilot_last_error(void);

/* Returns the kernel's errno of the last error; 0 if the kernel was not involved. */
int hugepilot_last_errno(void);

/* Writes the text of the last error: the cause and, after "; help: ", the suggested fix if there is
 * one. Returns its length. */
size_t hugepilot_last_error_text(char *buffer, size_t size);

/* Resets the last error of this thread to HUGEPILOT_OK. */
void hugepilot_clear_error(void);

/* ---- Options ----------------------------------------------------------------------------- */

/* Memory that a child sees after fork. A program started by exec never sees any of it. */
enum hugepilot_fork {
    /* The same contents, copied page by page when either process writes. On a hugetlb pool, the
     * parent owns the reserved pages. If the pool has no free page, the child gets SIGBUS, never
     * the parent. */
    HUGEPILOT_FORK_INHERIT = 0,
    /* No memory: access raises SIGSEGV in the child. The child must not use the handle, because its
     * addresses may belong to other memory by then. Saves copying page tables. */
    HUGEPILOT_FORK_ABSENT = 1
};

/* Properties of memory. Initialise with HUGEPILOT_OPTIONS_INIT. Functions also accept NULL for all
 * defaults. Texts need to live only until the call returns. */
typedef struct hugepilot_options {
    size_t size;        /* sizeof(hugepilot_options); identifies the header's version */
    const char *chain;  /* backings in order of preference, each at most once (= "thp,base"):
                         *   hugetlb-2m, hugetlb-1g  pages of a pool, reserved at once; sizes are
                         *                           rounded up to them
                         *   thp                     transparent huge pages, if the kernel finds
                         *                           free ones
                         *   thp:30%, thp:20-50%     the same for a part of the memory
                         *   collapse, collapse:30%  base pages until hugepilot_region_collapse
                         *   system                  pages by the THP setting, without advice
                         *   base                    base pages, whatever the THP setting */
    size_t align_bytes; /* alignment, a power of two up to 1 GiB (= 0: the page size) */
    const char *name;   /* shown as [anon:NAME] in /proc/PID/maps, except on pools (= NULL) */
    const char *numa;   /* "bind:0-1" or "interleave:0-3,5" (= NULL: the policy of the thread that
                         * touches a page). Bound pool memory is prefaulted at once. */
    int fork;           /* enum hugepilot_fork (= HUGEPILOT_FORK_INHERIT) */
} hugepilot_options;

#define HUGEPILOT_OPTIONS_INIT \
    {sizeof(hugepilot_options), NULL, 0, NULL, NULL, HUGEPILOT_FORK_INHERIT}

/* ---- Page usage -------------------------------------------------------------------------- */

/* Bytes by kind of page. The sum is the size of the memory. */
typedef struct hugepilot_usage {
    uint64_t base_bytes;       /* base pages, or huge ones smaller than a PMD entry maps (mTHP) */
    uint64_t thp_bytes;        /* transparent huge pages */
    uint64_t hugetlb_2m_bytes; /* pages of the 2 MiB pool */
    uint64_t hugetlb_1g_bytes; /* pages of the 1 GiB pool */
    uint64_t zero_bytes;       /* shared zero page: read, but never written */
    uint64_t swapped_bytes;    /* in swap */
    uint64_t untouched_bytes;  /* never touched; on a pool, their pages are reserved */
} hugepilot_usage;

/* Outcome of a collapse, verified in the pagemap. */
typedef struct hugepilot_collapse_outcome {
    uint64_t before_bytes;  /* on huge pages before */
    uint64_t after_bytes;   /* on huge pages afterwards */
    uint64_t empty_bytes;   /* huge-page-sized ranges without a touched page, skipped */
    uint64_t refused_bytes; /* huge-page-sized ranges that the kernel refused */
    int last_errno;         /* last errno of the kernel; 0 if it refused none */
} hugepilot_collapse_outcome;

/* ---- Regions ----------------------------------------------------------------------------- */

/* Memory on one backing. Several threads may use one handle at the same time, except in grow and
 * unmap. Access to the memory itself is the caller's to synchronise. */
typedef struct hugepilot_region hugepilot_region;

/* Maps at least `size` bytes of zeroed memory on the first available backing of the chain. No page
 * is resident until it is touched or prefaulted, except pool pages, which are taken now. Takes 2 to
 * 30 us, and on a pool 0.1 to 0.3 s per GiB. `options` may be NULL.
 *
 * Returns a region, to be passed to hugepilot_region_unmap, or NULL.
 * Errors: ARGUMENT, CHAIN, OVERFLOW, ALIGNMENT, NAME, NODES for requests that are invalid on every
 * backing. If every backing is refused, the error of the last: POOL_EMPTY, POOL_LIMIT, NO_POOL,
 * THP_NEVER, THP_DISABLED, ADVICE, BIND, PREFAULT, NO_MEMORY. */
HUGEPILOT_MUST_USE hugepilot_region *hugepilot_region_map(size_t size,
                                                          const hugepilot_options *options);

/* Unmaps the memory and frees the handle. Ignores NULL. */
void hugepilot_region_unmap(hugepilot_region *region);

/* Returns the address of the first byte, valid until the region grows or is unmapped; NULL for
 * NULL. */
void *hugepilot_region_data(const hugepilot_region *region);

/* Returns the mapped bytes: the requested size, rounded up to pages of the backing; 0 for NULL. */
size_t hugepilot_region_size(const hugepilot_region *region);

/* Returns 1 if the kernel shows the name; 0 without a name, or if the kernel refused it. */
int hugepilot_region_named(const hugepilot_region *region);

/* Writes the requested chain. Returns its length. */
size_t hugepilot_region_requested(const hugepilot_region *region, char *buffer, size_t size);

/* Writes the backing in use. Returns its length. The backing thp allows huge pages but does not
 * guarantee free ones: see hugepilot_region_usage. */
size_t hugepilot_region_backing(const hugepilot_region *region, char *buffer, size_t size);

/* Returns why backing `index` of the chain, counted from 0, was refused, and writes the cause and
 * the suggested fix. Returns HUGEPILOT_OK and writes nothing for the backing in use and those after
 * it. */
hugepilot_error hugepilot_region_refused(const hugepilot_region *region, size_t index, char *buffer,
                                         size_t size);

/* Reads from the pagemap which pages the memory is on. Touches no page. Takes about 30 us per GiB
 * of huge pages, 10 ms per GiB of base pages.
 * Errors: ARGUMENT for NULL, PAGEMAP. */
hugepilot_error hugepilot_region_usage(const hugepilot_region *region, hugepilot_usage *usage);

/* Makes all pages resident, with this number of threads (0 means 1), then collapses if that is the
 * backing. Keeps the contents. Takes 0.1 to 0.3 s per GiB. After an error, pages populated by then
 * stay.
 * Errors: ARGUMENT for NULL, PREFAULT (errno ENOMEM if memory is exhausted, EFAULT if a pool is,
 * EINVAL before Linux 5.14), PAGEMAP after a collapse. */
hugepilot_error hugepilot_region_prefault(const hugepilot_region *region, unsigned threads);

/* Collapses each huge-page-sized range with a touched page into a huge page. Takes 0.4 to 1 ms per
 * huge page. Ranges that the kernel refuses are counted in `outcome`, which may be NULL, and are
 * not errors.
 * Errors: ARGUMENT for NULL, PAGEMAP. */
hugepilot_error hugepilot_region_collapse(const hugepilot_region *region,
                                          hugepilot_collapse_outcome *outcome);

/* Grows the region to at least `size` bytes. The first `keep_bytes` bytes keep their contents, new
 * memory is zeroed, and the memory may move. Moves page tables, 0.2 ms per GiB; on a pool, with THP
 * for a part, or with an alignment above base pages, maps again and copies. After an error, the
 * region is unchanged. No other thread may use the handle.
 * Errors: as for hugepilot_region_map. */
HUGEPILOT_MUST_USE hugepilot_error hugepilot_region_grow(hugepilot_region *region, size_t size,
                                                         size_t keep_bytes);

/* ---- Arenas ------------------------------------------------------------------------------ */

/* Bump allocator over regions, which it maps as needed. Objects are freed together, by a reset. One
 * thread at a time may use a handle. */
typedef struct hugepilot_arena hugepilot_arena;

/* Creates an arena with regions of at least `chunk_bytes`, and at most `limit_bytes` mapped in
 * total (0: no limit). Maps nothing yet. `options` may be NULL.
 *
 * Returns an arena, to be passed to hugepilot_arena_delete, or NULL.
 * Errors: ARGUMENT, CHAIN, NAME, NO_MEMORY. */
HUGEPILOT_MUST_USE hugepilot_arena *hugepilot_arena_new(size_t chunk_bytes, size_t limit_bytes,
                                                        const hugepilot_options *options);

/* Unmaps all memory and frees the handle. Ignores NULL. */
void hugepilot_arena_delete(hugepilot_arena *arena);

/* Allocates `size` bytes at a multiple of `align`, uninitialised, valid until the arena is reset or
 * deleted. A `size` of 0 returns a pointer that is not NULL and must not be dereferenced.
 *
 * Returns the memory, or NULL.
 * Errors: ARGUMENT, OVERFLOW, ALIGNMENT, LIMIT, and as for hugepilot_region_map. */
HUGEPILOT_MUST_USE void *hugepilot_arena_alloc(hugepilot_arena *arena, size_t size, size_t align);

/* Frees all objects for reuse of their memory, which stays mapped. Ignores NULL. */
void hugepilot_arena_reset(hugepilot_arena *arena);

/* Returns the mapped bytes; 0 for NULL. */
size_t hugepilot_arena_mapped(const hugepilot_arena *arena);

/* Reads from the pagemap which pages all mapped memory is on, like hugepilot_region_usage.
 * Errors: ARGUMENT for NULL, PAGEMAP. */
hugepilot_error hugepilot_arena_usage(const hugepilot_arena *arena, hugepilot_usage *usage);

/* ---- Heaps ------------------------------------------------------------------------------- */

/* Allocator for objects of any size that are freed one by one. Small objects are grouped by size
 * class, so that many share a huge page; large ones have pages of their own. Several threads may
 * use one handle at the same time, and free the objects of other threads. After fork, the child may
 * use its copy, even if the parent had several threads. */
typedef struct hugepilot_heap hugepilot_heap;

/* Statistics of a heap. Exact while no other thread uses it. */
typedef struct hugepilot_stats {
    uint64_t allocated_bytes; /* in use, rounded up to size classes and pages */
    uint64_t held_bytes;      /* in use, and free between objects in use */
    uint64_t idle_bytes;      /* free in whole huge pages, kept for reuse */
    uint64_t returned_bytes;  /* freed to the kernel since the heap began */
    uint64_t mapped_bytes;    /* addresses; untouched ones use no pages, but pools reserve them */
} hugepilot_stats;

/* Creates a heap. Maps nothing yet. `options` may be NULL; children inherit the memory, whatever
 * `fork` there.
 *
 * Returns a heap, to be passed to hugepilot_heap_delete, or NULL.
 * Errors: ARGUMENT, CHAIN, NAME, NO_MEMORY. */
HUGEPILOT_MUST_USE hugepilot_heap *hugepilot_heap_new(const hugepilot_options *options);

/* Returns a heap of the process: on "thp,base", or on "hugetlb-2m" only. The allocators of
 * hugepilot.hpp use them. Never NULL, and must not be deleted. */
hugepilot_heap *hugepilot_heap_thp(void);
hugepilot_heap *hugepilot_heap_hugetlb(void);

/* Unmaps all memory and frees the handle. No thread may use the heap or its objects. Ignores
 * NULL. */
void hugepilot_heap_delete(hugepilot_heap *heap);

/* Allocates `size` bytes at a multiple of `align`, a power of two up to 1 GiB, uninitialised. A
 * `size` of 0 counts as 1.
 *
 * Returns the memory, to be passed to hugepilot_heap_free, or NULL.
 * Errors: ARGUMENT, OVERFLOW, ALIGNMENT, and as for hugepilot_region_map. */
HUGEPILOT_MUST_USE void *hugepilot_heap_alloc(hugepilot_heap *heap, size_t size, size_t align);

/* Resizes memory of this heap to `size` bytes, in place or by moving it, and keeps the contents
 * that fit. A `memory` of NULL allocates. After an error, the memory is unchanged.
 *
 * Returns the memory, or NULL.
 * Errors: as for hugepilot_heap_alloc. */
HUGEPILOT_MUST_USE void *hugepilot_heap_realloc(hugepilot_heap *heap, void *memory, size_t size,
                                                size_t align);

/* Frees memory of this heap. Ignores NULL. Misuse, such as a second free, ends the process with a
 * message (SIGABRT). */
void hugepilot_heap_free(hugepilot_heap *heap, void *memory);

/* Frees all unused whole huge pages to the kernel. By itself, a heap keeps 32 MiB of free memory,
 * or an eighth of the memory in use if that is more. Returns the freed bytes; 0 for NULL. */
size_t hugepilot_heap_trim(hugepilot_heap *heap);

/* Counts the memory of the heap. Takes about 100 ns per span of 64 KiB.
 * Errors: ARGUMENT for NULL. */
hugepilot_error hugepilot_heap_stats(const hugepilot_heap *heap, hugepilot_stats *stats);

/* Reads from the pagemap which pages all mapped memory is on, like hugepilot_region_usage.
 * Errors: ARGUMENT for NULL, PAGEMAP. */
hugepilot_error hugepilot_heap_usage(const hugepilot_heap *heap, hugepilot_usage *usage);

/* ---- Phases ------------------------------------------------------------------------------ */

/* Begins a phase of the recording that `hugepilot record -- CMD` makes of this program. Does
 * nothing outside of a recording, for NULL, or if the recording cannot be written to. A line break
 * in the name becomes a space. Takes about 10 us. Reads the environment like getenv: no thread may
 * change it meanwhile. */
void hugepilot_begin_phase(const char *name);

#ifdef __cplusplus
}
#endif

#endif
