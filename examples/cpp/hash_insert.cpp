// Benchmark of Zheng, Using Huge Pages on Linux: fills a hash table with room for all entries, key
// by key. The hash is a CRC, so neighbouring keys land far apart, and on base pages nearly every
// insertion misses the TLB.
#include <nmmintrin.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hugepilot.hpp>
#include <vector>

namespace {

const char *const usage =
    "usage: hash_insert [--entries N] [--allocator std|thp|huge]\n"
    "\n"
    "Fills a hash table in a std::vector, and prints inserts per second, page faults and bytes on\n"
    "huge pages.\n"
    "  std   std::allocator\n"
    "  thp   hugepilot::thp_allocator: transparent huge pages if enabled, else base pages\n"
    "  huge  hugepilot::huge_page_allocator: the 2 MiB hugetlb pool, or an error\n"
    "\n"
    "examples:\n"
    "  hash_insert --allocator thp\n"
    "  hugepilot pool set --size 2MiB --count 160 && hash_insert --allocator huge\n";

struct entry {
    std::size_t key_plus_one = 0;  // 0 marks a free slot
    std::size_t value = 0;
};

// Hash table with open addressing and linear probing, at most half full.
template <class Allocator>
class table {
public:
    explicit table(std::size_t entries) : slots_(power_of_two(2 * entries)) {}

    void insert(std::size_t key, std::size_t value) { slot(key) = {key + 1, value}; }

    bool has(std::size_t key, std::size_t value) {
        const entry &found = slot(key);
        return found.key_plus_one == key + 1 && found.value == value;
    }

private:
    static std::size_t power_of_two(std::size_t least) {
        std::size_t size = 1;
        while (size < least) size *= 2;
        return size;
    }

    // The slot of the key, or the free one where it belongs.
    entry &slot(std::size_t key) {
        const std::size_t mask = slots_.size() - 1;
        std::size_t at = _mm_crc32_u64(0, key) & mask;
        while (slots_[at].key_plus_one != 0 && slots_[at].key_plus_one != key + 1) {
            at = (at + 1) & mask;
        }
        return slots_[at];
    }

    std::vector<entry, Allocator> slots_;
};

long page_faults() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

// Bytes of the process on huge pages, as counted by the kernel.
std::size_t huge_bytes() {
    std::FILE *file = std::fopen("/proc/self/smaps_rollup", "r");
    std::size_t sum = 0, kib = 0;
    for (char line[256]; file != nullptr && std::fgets(line, sizeof line, file) != nullptr;) {
        if (std::sscanf(line, "AnonHugePages: %zu", &kib) == 1 ||
            std::sscanf(line, "Private_Hugetlb: %zu", &kib) == 1) {
            sum += kib << 10;
        }
    }
    if (file != nullptr) std::fclose(file);
    return sum;
}

template <class Allocator>
int run(std::size_t entries) {
    const long faults_before = page_faults();
    const auto start = std::chrono::steady_clock::now();
    table<Allocator> table(entries);
    for (std::size_t i = 0; i < entries; ++i) table.insert(i, i);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const long faults = page_faults() - faults_before;

    for (std::size_t i = 0; i < entries; ++i) {
        if (!table.has(i, i)) {
            std::fprintf(stderr, "hash_insert: entry %zu is lost\n", i);
            return 1;
        }
    }
    std::printf("inserts_per_second %.0f\n", static_cast<double>(entries) / took.count());
    std::printf("seconds %.6f\npage_faults %ld\n", took.count(), faults);
    std::printf("huge_bytes %zu\n", huge_bytes());
    return 0;
}

int usage_error(const char *what) {
    std::fprintf(stderr, "hash_insert: %s\n\n%s", what, usage);
    return 2;
}

}  // namespace

int main(int argc, char **argv) {
    std::size_t entries = 10'000'000;
    const char *allocator = "std";
    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], "--help") == 0) return std::fputs(usage, stdout) < 0;
        if (i + 1 == argc) return usage_error("an option without its value");
        char *end = argv[i + 1];
        if (std::strcmp(argv[i], "--allocator") == 0) {
            allocator = argv[++i];
        } else if (std::strcmp(argv[i], "--entries") == 0) {
            entries = std::strtoull(argv[++i], &end, 10);
            if (entries == 0 || *end != '\0') {
                return usage_error("--entries takes a number above 0");
            }
        } else {
            return usage_error("no such option");
        }
    }
    using hugepilot::huge_page_allocator;
    using hugepilot::thp_allocator;
    try {
        if (std::strcmp(allocator, "std") == 0) return run<std::allocator<entry>>(entries);
        if (std::strcmp(allocator, "thp") == 0) return run<thp_allocator<entry>>(entries);
        if (std::strcmp(allocator, "huge") == 0) return run<huge_page_allocator<entry>>(entries);
    } catch (const std::bad_alloc &error) {
        std::fprintf(stderr, "hash_insert: %s\n", error.what());
        return 3;
    }
    return usage_error("--allocator takes std, thp or huge");
}
