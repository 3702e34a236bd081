// hugepilot: memory on huge pages, for C++17. Header-only, over the C interface of hugepilot.h,
// which documents backings, costs, errors and threads.
//
//     hugepilot::options options;
//     options.chain = "hugetlb-2m,thp,base";
//     hugepilot::region region(64 << 20, options);         // unmapped at the end of the scope
//     std::cout << region.usage().thp_bytes << " bytes on transparent huge pages\n";
//
// Sizes are in bytes. Functions that are not noexcept throw hugepilot::error, a std::bad_alloc with
// an error code and a text.
#ifndef HUGEPILOT_HPP
#define HUGEPILOT_HPP

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "hugepilot.h"

namespace hugepilot {

/// Cause of a failure. Copying and reading it allocate nothing.
class error : public std::bad_alloc {
public:
    /// Copies the last error of this thread.
    error() noexcept : code_(hugepilot_last_error()), errno_(hugepilot_last_errno()) {
        hugepilot_last_error_text(text_, sizeof text_);
    }
    /// Returns the cause and, after "; help: ", the suggested fix if there is one.
    const char *what() const noexcept override { return text_; }
    /// Returns the error code.
    hugepilot_error code() const noexcept { return code_; }
    /// Returns the kernel's errno; 0 if the kernel was not involved.
    int kernel_errno() const noexcept { return errno_; }

private:
    hugepilot_error code_;
    int errno_;
    char text_[320];
};

/// Backing of a chain that was refused.
struct refused_backing {
    /// Error code.
    hugepilot_error code;
    /// Cause and, after "; help: ", the suggested fix if there is one.
    std::string text;
};

/// Properties of memory, with the fields of hugepilot_options.
struct options : hugepilot_options {
    options() noexcept : hugepilot_options(HUGEPILOT_OPTIONS_INIT) {}
    /// Sets the chain. `text` must outlive the options.
    explicit options(const char *text) noexcept : options() { chain = text; }
};

namespace detail {

inline void check(hugepilot_error done) {
    if (done != HUGEPILOT_OK) throw error();
}

template <class T>
T *check(T *made) {
    if (made == nullptr) throw error();
    return made;
}

/// Returns the whole text that `write` writes like snprintf.
template <class Write>
std::string text(Write write) {
    std::string text(write(nullptr, 0), '\0');
    write(text.data(), text.size() + 1);
    return text;
}

struct ends {
    void operator()(hugepilot_region *region) const noexcept { hugepilot_region_unmap(region); }
    void operator()(hugepilot_arena *arena) const noexcept { hugepilot_arena_delete(arena); }
    void operator()(hugepilot_heap *heap) const noexcept { hugepilot_heap_delete(heap); }
};

}  // namespace detail

/// Zeroed memory on the first available backing of a chain, unmapped on destruction. A moved-from
/// region has no memory, and may only be assigned to or destroyed.
class region {
public:
    /// Maps at least `size` bytes.
    explicit region(std::size_t size, const options &requested = options())
        : handle_(detail::check(hugepilot_region_map(size, &requested))) {}

    /// Returns the first byte, valid until the region grows or is destroyed.
    std::byte *data() noexcept {
        return static_cast<std::byte *>(hugepilot_region_data(handle_.get()));
    }
    const std::byte *data() const noexcept {
        return static_cast<const std::byte *>(hugepilot_region_data(handle_.get()));
    }
    /// Returns the mapped bytes: the requested size, rounded up to pages of the backing.
    std::size_t size() const noexcept { return hugepilot_region_size(handle_.get()); }
    /// Returns whether the kernel shows the name in /proc/PID/maps.
    bool named() const noexcept { return hugepilot_region_named(handle_.get()) != 0; }

    /// Returns the requested chain.
    std::string requested() const {
        return detail::text([this](char *buffer, std::size_t size) {
            return hugepilot_region_requested(handle_.get(), buffer, size);
        });
    }
    /// Returns the backing in use.
    std::string backing() const {
        return detail::text([this](char *buffer, std::size_t size) {
            return hugepilot_region_backing(handle_.get(), buffer, size);
        });
    }
    /// Returns the backings of the chain before it, with the causes.
    std::vector<refused_backing> refused() const {
        std::vector<refused_backing> all;
        char text[320];
        while (hugepilot_error code = hugepilot_region_refused(handle_.get(), all.size(), text,
                                                               sizeof text)) {
            all.push_back({code, text});
        }
        return all;
    }
    /// Reads from the pagemap which pages the memory is on.
    hugepilot_usage usage() const {
        hugepilot_usage usage;
        detail::check(hugepilot_region_usage(handle_.get(), &usage));
        return usage;
    }

    /// Makes all pages resident, with this number of threads.
    void prefault(unsigned threads = 1) {
        detail::check(hugepilot_region_prefault(handle_.get(), threads));
    }
    /// Collapses touched pages into huge pages.
    hugepilot_collapse_outcome collapse() {
        hugepilot_collapse_outcome outcome;
        detail::check(hugepilot_region_collapse(handle_.get(), &outcome));
        return outcome;
    }
    /// Grows to at least `size` bytes, and keeps the contents of the first `keep` bytes. After an
    /// exception, the region is unchanged.
    void grow(std::size_t size, std::size_t keep) {
        detail::check(hugepilot_region_grow(handle_.get(), size, keep));
    }

private:
    std::unique_ptr<hugepilot_region, detail::ends> handle_;
};

/// Bump allocator, also for containers of std::pmr, whose deallocation then does nothing. One
/// thread at a time may use it. Destructors of objects do not run.
class arena : public std::pmr::memory_resource {
public:
    /// Creates an arena with regions of at least `chunk` bytes, and at most `limit` bytes in total
    /// (0: no limit). Maps nothing yet.
    explicit arena(std::size_t chunk, std::size_t limit = 0,
                   const options &requested = options())
        : handle_(detail::check(hugepilot_arena_new(chunk, limit, &requested))) {}
    // Containers point to it, so it is neither copied nor moved.
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;

    /// Frees all objects for reuse of their memory, which stays mapped.
    void reset() noexcept { hugepilot_arena_reset(handle_.get()); }
    /// Returns the mapped bytes.
    std::size_t mapped() const noexcept { return hugepilot_arena_mapped(handle_.get()); }
    /// Reads from the pagemap which pages all mapped memory is on.
    hugepilot_usage usage() const {
        hugepilot_usage usage;
        detail::check(hugepilot_arena_usage(handle_.get(), &usage));
        return usage;
    }

private:
    void *do_allocate(std::size_t size, std::size_t align) override {
        return detail::check(hugepilot_arena_alloc(handle_.get(), size, align));
    }
    void do_deallocate(void *, std::size_t, std::size_t) noexcept override {}
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other;
    }

    std::unique_ptr<hugepilot_arena, detail::ends> handle_;
};

/// Allocator for objects of any size on a chain of backings, also for containers of std::pmr.
/// Several threads may use it at the same time.
class heap : public std::pmr::memory_resource {
public:
    /// Creates a heap. Maps nothing yet.
    explicit heap(const options &requested = options())
        : handle_(detail::check(hugepilot_heap_new(&requested))) {}
    // Containers point to it, so it is neither copied nor moved.
    heap(const heap &) = delete;
    heap &operator=(const heap &) = delete;

    /// Returns the handle, for hugepilot::allocator.
    hugepilot_heap *handle() const noexcept { return handle_.get(); }
    /// Frees all unused whole huge pages to the kernel. Returns the freed bytes.
    std::size_t trim() noexcept { return hugepilot_heap_trim(handle_.get()); }
    /// Counts the memory of the heap.
    hugepilot_stats stats() const {
        hugepilot_stats stats;
        detail::check(hugepilot_heap_stats(handle_.get(), &stats));
        return stats;
    }
    /// Reads from the pagemap which pages all mapped memory is on.
    hugepilot_usage usage() const {
        hugepilot_usage usage;
        detail::check(hugepilot_heap_usage(handle_.get(), &usage));
        return usage;
    }

private:
    void *do_allocate(std::size_t size, std::size_t align) override {
        return detail::check(hugepilot_heap_alloc(handle_.get(), size, align));
    }
    void do_deallocate(void *memory, std::size_t, std::size_t) noexcept override {
        hugepilot_heap_free(handle_.get(), memory);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other;
    }

    std::unique_ptr<hugepilot_heap, detail::ends> handle_;
};

/// Heap of hugepilot::thp_allocator: transparent huge pages if enabled, else base pages.
struct thp {
    static hugepilot_heap *handle() noexcept {
        static hugepilot_heap *const handle = hugepilot_heap_thp();
        return handle;
    }
};

/// Heap of hugepilot::huge_page_allocator: pages of the 2 MiB hugetlb pool only.
struct hugetlb {
    static hugepilot_heap *handle() noexcept {
        static hugepilot_heap *const handle = hugepilot_heap_hugetlb();
        return handle;
    }
};

/// Stateless allocator for containers: all with the same `Heap` are equal. `Heap::handle()` returns
/// the heap. For another chain, define a heap:
///
///     struct pages {
///         static hugepilot_heap *handle() {
///             // Never deleted: containers may live to the end of the process.
///             static auto *const heap =
///                 new hugepilot::heap(hugepilot::options("hugetlb-2m,base"));
///             return heap->handle();
///         }
///     };
///     std::vector<int, hugepilot::allocator<int, pages>> numbers;
template <class T, class Heap>
class allocator {
public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    constexpr allocator() noexcept = default;
    template <class U>
    constexpr allocator(const allocator<U, Heap> &) noexcept {}

    /// Allocates `n` objects of T; 0 is allowed. Throws std::bad_array_new_length if their size
    /// overflows, else hugepilot::error.
    [[nodiscard]] T *allocate(std::size_t n) {
        if (n > std::size_t(-1) / sizeof(T)) throw std::bad_array_new_length();
        void *memory = hugepilot_heap_alloc(Heap::handle(), n * sizeof(T), alignof(T));
        return static_cast<T *>(detail::check(memory));
    }
    /// Frees memory of `allocate`.
    void deallocate(T *memory, std::size_t) noexcept {
        hugepilot_heap_free(Heap::handle(), memory);
    }
};

template <class T, class U, class Heap>
constexpr bool operator==(const allocator<T, Heap> &, const allocator<U, Heap> &) noexcept {
    return true;
}
template <class T, class U, class Heap>
constexpr bool operator!=(const allocator<T, Heap> &, const allocator<U, Heap> &) noexcept {
    return false;
}

/// Allocator on transparent huge pages if enabled, else base pages.
template <class T>
using thp_allocator = allocator<T, thp>;

/// Allocator on pages of the 2 MiB hugetlb pool; throws std::bad_alloc if it has too few. Not every
/// container supports that: Abseil's tables do not. For these, define a heap whose chain ends with
/// base.
template <class T>
using huge_page_allocator = allocator<T, hugetlb>;

}  // namespace hugepilot

#endif
