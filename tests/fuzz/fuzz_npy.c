/* folder: data */
/* Arrays of NumPy: any bytes are refused, or give values that lie inside of them and are as many as the shape
 * says. */
#include "data/npy.h"
#include "tests/fuzz/fuzz_main.h"

static void parse_array_of(const uint8_t *data, size_t size, int is_label)
{
    static const int64_t type_bytes[] = {
        [TANDEM_NPY_F32] = 4, [TANDEM_NPY_U8] = 1, [TANDEM_NPY_S32] = 4, [TANDEM_NPY_S64] = 8};
    tandem_npy npy, before;
    tandem_error error = {0};
    memset(&npy, 0xa5, sizeof npy);
    memcpy(&before, &npy, sizeof npy);
    const tandem_status status = tandem_npy_parse(&npy, data, size, is_label, "input", &error);
    if (status != TANDEM_OK) {
        must(status == TANDEM_MALFORMED && error.status == status && error.text[0] != '\0');
        must(memcmp(&npy, &before, sizeof npy) == 0);
        return;
    }
    int64_t product = 1;
    must(npy.n_dim >= 0 && npy.n_dim <= TANDEM_NPY_DIMENSIONS);
    for (int d = 0; d < TANDEM_NPY_DIMENSIONS; d++) {
        must(npy.dim[d] >= 0 && (d < npy.n_dim || npy.dim[d] == 1));
        product *= npy.dim[d];
    }
    must(product == npy.n_value);
    must(is_label ? npy.type != TANDEM_NPY_F32 : npy.type <= TANDEM_NPY_U8);
    must(npy.values > data && npy.values + npy.n_value * type_bytes[npy.type] == data + size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse_array_of(data, size, 0);
    parse_array_of(data, size, 1);
    return 0;
}

int main(int argc, char **argv)
{
    static const char floats[] =
        "\x93NUMPY\1\0\x3c\0{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"
        "\n12345678";
    static const char labels[] =
        "\x93NUMPY\2\0\x3b\0\0\0{'descr': '<i8', 'fortran_order': False, 'shape': (1,), } "
        "\n12345678";
    static const char fields[] = "\x93NUMPY\3\0\x4e\0\0\0{'descr': [('a', '|u1'), ('b', '|u1')], "
                                 "'fortran_order': False, 'shape': ()} \n12";
    static const uint8_t *const seeds[] = {(const uint8_t *)floats, (const uint8_t *)labels,
                                           (const uint8_t *)fields};
    static const size_t seed_bytes[] = {sizeof floats - 1, sizeof labels - 1, sizeof fields - 1};
    return tandem_fuzz_main("npy", LLVMFuzzerTestOneInput, seeds, seed_bytes, 3, argc, argv);
}
