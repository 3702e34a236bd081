// hugepilot: memory on huge pages, for C++17. All of it is in this header, over the C interface of hugepilot.h, which says
// what things cost and mean.
//
//     hugepilot::options options;
//     options.chain = "hugetlb-2m,thp,base";
//     hugepilot::region region(64 << 20, options);         // unmapped at the end of the scope
//     std::cout << region.usage().thp_bytes << " bytes on transparent huge pages\n";
//
// What fails throws hugepilot::error, which is a std::bad_alloc with a number and words.
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

/// Why memory is not to be had as it was asked for. Copying and reading it take no memory.
class error : public std::bad_alloc {
public:
    /// The last error of this thread.
    error() noexcept : code_(hugepilot_last_error()), errno_(hugepilot_last_errno()) {
        hugepilot_last_error_text(text_, sizeof text_);
    }
    /// The cause, and after a semicolon the fix where there is one.
    const char *what() const noexcept override { return text_; }
    hugepilot_error code() const noexcept { return code_; }
    /// What the kernel answered, as in errno.h; 0 where it was not asked.
    int kernel_errno() const noexcept { return errno_; }

private:
    hugepilot_error code_;
    int errno_;
    char text_[320];
};

/// Why a backing of a chain was passed over.
struct refusal {
    hugepilot_error code;
    /// The cause, and after a semicolon the fix where there is one.
    std::string text;
};

/// What is asked for; the fields are those of hugepilot_options.
struct options : hugepilot_options {
    options() noexcept : hugepilot_options(HUGEPILOT_OPTIONS_INIT) {}
    /// `text` stays the caller's.
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

/// All of a text that `write` writes as snprintf does.
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

/// Memory on the pages that its chain could get. Moved, it takes its memory along and leaves nothing behind but to be
/// assigned to or destroyed.
class region {
public:
    /// At least `size` bytes. Throws hugepilot::error.
    explicit region(std::size_t size, const options &requested = options())
        : handle_(detail::check(hugepilot_region_map(size, &requested))) {}

    std::byte *data() noexcept { return static_cast<std::byte *>(hugepilot_region_data(handle_.get())); }
    const std::byte *data() const noexcept {
        return static_cast<const std::byte *>(hugepilot_region_data(handle_.get()));
    }
    /// In bytes: what was asked for, rounded up to the pages of the backing.
    std::size_t size() const noexcept { return hugepilot_region_size(handle_.get()); }
    /// Whether it shows under its name in /proc/PID/maps.
    bool named() const noexcept { return hugepilot_region_named(handle_.get()) != 0; }

    /// The chain asked for.
    std::string requested() const {
        return detail::text([this](char *to, std::size_t n) { return hugepilot_region_requested(handle_.get(), to, n); });
    }
    /// The backing that was to be had.
    std::string backing() const {
        return detail::text([this](char *to, std::size_t n) { return hugepilot_region_backing(handle_.get(), to, n); });
    }
    /// Why the backings before it were not, in their order.
    std::vector<refusal> refused() const {
        std::vector<refusal> all;
        char text[320];
        while (hugepilot_error code = hugepilot_region_refused(handle_.get(), all.size(), text, sizeof text)) {
            all.push_back({code, text});
        }
        return all;
    }
    /// On which pages it is, now. Throws hugepilot::error.
    hugepilot_usage usage() const {
        hugepilot_usage usage;
        detail::check(hugepilot_region_usage(handle_.get(), &usage));
        return usage;
    }

    /// Makes all pages resident. Throws hugepilot::error.
    void prefault(unsigned threads = 1) { detail::check(hugepilot_region_prefault(handle_.get(), threads)); }
    /// Puts what has been touched on huge pages. Throws hugepilot::error.
    hugepilot_collapse_outcome collapse() {
        hugepilot_collapse_outcome collapsed;
        detail::check(hugepilot_region_collapse(handle_.get(), &collapsed));
        return collapsed;
    }
    /// Makes it at least `size` bytes long, keeping the first `keep`. Throws hugepilot::error; then all is as before.
    void grow(std::size_t size, std::size_t keep) {
        detail::check(hugepilot_region_grow(handle_.get(), size, keep));
    }

private:
    std::unique_ptr<hugepilot_region, detail::ends> handle_;
};

/// Memory for many things that are given back together; for the containers of std::pmr, too, where deallocating does
/// nothing. For one thread at a time. It runs no destructors.
class arena : public std::pmr::memory_resource {
public:
    /// Maps regions of at least `chunk` bytes as they are needed, `limit` bytes in all; 0 is no limit. Throws
    /// hugepilot::error.
    explicit arena(std::size_t chunk, std::size_t limit = 0, const options &requested = options())
        : handle_(detail::check(hugepilot_arena_new(chunk, limit, &requested))) {}
    // Containers point to it.
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;

    /// Takes all memory back, for new use; it stays mapped.
    void reset() noexcept { hugepilot_arena_reset(handle_.get()); }
    /// Bytes mapped.
    std::size_t mapped() const noexcept { return hugepilot_arena_mapped(handle_.get()); }
    /// On which pages they are, now. Throws hugepilot::error.
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
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    std::unique_ptr<hugepilot_arena, detail::ends> handle_;
};

/// Memory for things of any size, on the chain of your choice; for the containers of std::pmr, too. Any thread may use it.
class heap : public std::pmr::memory_resource {
public:
    /// Throws hugepilot::error.
    explicit heap(const options &requested = options()) : handle_(detail::check(hugepilot_heap_new(&requested))) {}
    // Containers point to it.
    heap(const heap &) = delete;
    heap &operator=(const heap &) = delete;

    /// For allocators: see hugepilot::allocator.
    hugepilot_heap *handle() const noexcept { return handle_.get(); }
    /// Gives back to the kernel what is free in whole huge pages; how many bytes.
    std::size_t trim() noexcept { return hugepilot_heap_trim(handle_.get()); }
    /// What it has.
    hugepilot_stats stats() const {
        hugepilot_stats stats;
        detail::check(hugepilot_heap_stats(handle_.get(), &stats));
        return stats;
    }
    /// On which pages that is, now. Throws hugepilot::error.
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
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    std::unique_ptr<hugepilot_heap, detail::ends> handle_;
};

/// Transparent huge pages where there are free ones, else base pages: the heap of hugepilot::thp_allocator.
struct thp {
    static hugepilot_heap *handle() noexcept {
        static hugepilot_heap *const handle = hugepilot_heap_thp();
        return handle;
    }
};

/// Pages of the hugetlb pool of 2 MiB, or std::bad_alloc: the heap of hugepilot::huge_page_allocator.
struct hugetlb {
    static hugepilot_heap *handle() noexcept {
        static hugepilot_heap *const handle = hugepilot_heap_hugetlb();
        return handle;
    }
};

/// An allocator for containers, without state: all that share a `Heap` are equal. `Heap::handle()` gives the heap; write your
/// own for another chain:
///
///     struct pages {
///         static hugepilot_heap *handle() {     // never deleted, as containers may live to the end of the process
///             static auto *const heap = new hugepilot::heap(hugepilot::options("hugetlb-1g,hugetlb-2m,thp,base"));
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

    /// Throws std::bad_array_new_length where `n` of T are more than a number of bytes can be, else hugepilot::error. Of no
    /// T, memory that may be deallocated.
    [[nodiscard]] T *allocate(std::size_t n) {
        if (n > std::size_t(-1) / sizeof(T)) throw std::bad_array_new_length();
        return static_cast<T *>(detail::check(hugepilot_heap_alloc(Heap::handle(), n * sizeof(T), alignof(T))));
    }
    void deallocate(T *memory, std::size_t) noexcept { hugepilot_heap_free(Heap::handle(), memory); }
};

template <class T, class U, class Heap>
constexpr bool operator==(const allocator<T, Heap> &, const allocator<U, Heap> &) noexcept {
    return true;
}
template <class T, class U, class Heap>
constexpr bool operator!=(const allocator<T, Heap> &, const allocator<U, Heap> &) noexcept {
    return false;
}

/// Transparent huge pages where there are free ones, else base pages.
template <class T>
using thp_allocator = allocator<T, thp>;

/// Pages of the hugetlb pool of 2 MiB; std::bad_alloc where it has too few. Not every container survives that: the tables of
/// Abseil do not. For these, write an allocator of a chain that ends with base.
template <class T>
using huge_page_allocator = allocator<T, hugetlb>;

}  // namespace hugepilot

#endif
