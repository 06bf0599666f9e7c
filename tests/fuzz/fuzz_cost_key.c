/* folder: predictor */
/* Work and time of any signature in any pass and types: none, or finite and not negative. */
#include <math.h>

#include "tandem/advanced/predictor.h"
#include "tests/fuzz/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_cost_key key = {.precision = "fp32"};
    tandem_work work = {.bytes = -7};
    tandem_device device;
    if (size < 1 || size - 1 >= sizeof key.signature) return 0;
    key.kind = data[0] & 1 ? TANDEM_COST_OP : TANDEM_COST_CAST;
    key.pass = (tandem_pass)(data[0] >> 1 & 3);
    key.from = (tandem_dtype)(data[0] >> 3 & 3);
    key.to = (tandem_dtype)(data[0] >> 5 & 3);
    memcpy(key.signature, data + 1, size - 1);
    memcpy(&key.elements, key.signature, sizeof key.elements);
    demand(tandem_device_find(&device, "a100", NULL) == TANDEM_OK, "there is an a100");
    if (!tandem_work_of(&work, &key)) {
        demand(work.bytes == -7, "the output is untouched");
        return 0;
    }
    demand(isfinite(work.flops) && isfinite(work.bytes) && work.bytes > 0, "work is finite, and moves "
                                                                           "something");
    const double ns = tandem_described_ns(&device, &work);
    demand(ns >= 1e3 * tandem_constants_fitted()->value[TANDEM_CONSTANT_LAUNCH],
           "no kernel is shorter than a launch");
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "\001linear m=784 k=192 n=768",
        "\005matmul batch=64 m=64 k=32 n=64 tb=1",
        "\003conv2d n=16 h=14 w=14 c=32 -> c=64 k=3x3 s=2 p=1",
        "\001maxpool n=4 h=49 w=1 c=256 k=49x1 s=1 p=0",
        "\005embedding rows=512 vocabulary=128 width=128",
        "\001transpose 4x3x49x64 axes=0213",
        "\003layernorm rows=784 n=192",
        "\007adamw n=1794464 parameters=71",
        "\040\020\000\000\000\000\000\000\000",
    };
    enum { N = sizeof seeds / sizeof *seeds };
    const uint8_t *bytes[N];
    size_t n[N];
    for (int i = 0; i < N; i++) {
        bytes[i] = (const uint8_t *)seeds[i];
        n[i] = i == N - 1 ? 9 : strlen(seeds[i]);
    }
    return tandem_fuzz_main("cost_key", LLVMFuzzerTestOneInput, bytes, n, N, argc, argv);
}
