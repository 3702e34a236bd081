/* Maps memory on a chain of backings, and prints the pages in use and each refused backing.
 *
 * With hugepilot installed (cargo xtask install PREFIX):
 *   export PKG_CONFIG_PATH=PREFIX/lib/pkgconfig
 *   cc region.c $(pkg-config --cflags --libs hugepilot) -o region
 *   LD_LIBRARY_PATH=PREFIX/lib ./region 64 hugetlb-2m,thp,base
 */
#include <hugepilot.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t mib = argc > 1 ? strtoull(argv[1], NULL, 10) : 64;
    hugepilot_options options = HUGEPILOT_OPTIONS_INIT;
    options.chain = argc > 2 ? argv[2] : "hugetlb-2m,thp,base";
    options.name = "example";

    char text[320];
    hugepilot_region *region = hugepilot_region_map(mib << 20, &options);
    if (region == NULL || hugepilot_region_prefault(region, 1) != HUGEPILOT_OK) {
        hugepilot_last_error_text(text, sizeof text);
        fprintf(stderr, "region: %s\n", text);
        hugepilot_region_unmap(region);
        return 3;
    }
    for (size_t i = 0; hugepilot_region_refused(region, i, text, sizeof text) != 0; i++) {
        printf("skipped: %s\n", text);
    }
    hugepilot_region_backing(region, text, sizeof text);
    hugepilot_usage usage;
    if (hugepilot_region_usage(region, &usage) == HUGEPILOT_OK) {
        uint64_t huge_bytes = usage.thp_bytes + usage.hugetlb_2m_bytes + usage.hugetlb_1g_bytes;
        printf("%zu MiB on %s, %llu MiB of it on huge pages\n",
               hugepilot_region_size(region) >> 20, text, (unsigned long long)(huge_bytes >> 20));
    }
    hugepilot_region_unmap(region);
    return 0;
}
