/* folder: data */
/* IDX files: whatever the bytes, parsing says no or gives a view that lies inside of them. */
#include "data/idx.h"
#include "tests/fuzz/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_idx idx, before;
    tandem_error error = {0};
    memset(&idx, 0xa5, sizeof idx);
    memcpy(&before, &idx, sizeof idx);
    const tandem_status status = tandem_idx_parse(&idx, data, size, "input", &error);
    if (status != TANDEM_OK) {
        must(status == TANDEM_MALFORMED && error.status == status && error.text[0] != '\0');
        must(memcmp(&idx, &before, sizeof idx) == 0);
        return 0;
    }
    must(idx.n_dimension >= 1 && idx.n_dimension <= TANDEM_IDX_DIMENSIONS);
    uint64_t product = 1;
    for (int i = 0; i < TANDEM_IDX_DIMENSIONS; i++) {
        must(idx.size[i] >= 0 && (i < idx.n_dimension || idx.size[i] == 1));
        product *= (uint64_t)idx.size[i];
    }
    must(product == idx.n_value);
    must(idx.values >= data && (size_t)(idx.values - data) + idx.n_value == size);
    volatile uint8_t last = 0;
    for (size_t i = 0; i < idx.n_value; i++) last = idx.values[i];
    (void)last;
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 1, 10, 20, 30, 40};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9};
    static const uint8_t none[] = {0, 0, 8, 1, 0, 0, 0, 0};
    static const uint8_t *const seeds[] = {images, labels, none};
    static const size_t seed_bytes[] = {sizeof images, sizeof labels, sizeof none};
    return tandem_fuzz_main("idx", LLVMFuzzerTestOneInput, seeds, seed_bytes, 3, argc, argv);
}
