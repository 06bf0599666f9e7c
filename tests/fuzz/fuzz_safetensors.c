/* folder: backend */
/* Headers of safetensors from any bytes: refused with a reason, or places that lie within the file and cover
 * it. */
#include "backend/safetensors.h"
#include "tests/fuzz/fuzz_main.h"

enum { N = 3 };
static const uint64_t data_bytes = 24 + 4 + 8;
static const tandem_tensor tensor[N] = {
    {"a.weight", {2, {2, 3}}, NULL}, {"a.bias", {0, {0}}, NULL}, {"n", {1, {4}}, NULL}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_stored_tensor stored[N], before[N];
    tandem_error error = {0};
    memset(stored, 0xa5, sizeof stored);
    memcpy(before, stored, sizeof stored);
    const tandem_status status =
        tandem_safetensors_parse(stored, tensor, N, (const char *)data, size, data_bytes, "input", &error);
    if (status != TANDEM_OK) {
        must((status == TANDEM_MALFORMED || status == TANDEM_WRONG_MODEL) && error.status == status &&
             error.text[0]);
        must(memcmp(stored, before, sizeof stored) == 0);
        return 0;
    }
    uint64_t sum = 0;
    for (int k = 0; k < N; k++) {
        const uint64_t each = stored[k].type == TANDEM_STORED_F32 ? 4 : 2;
        must(stored[k].bytes == each * (uint64_t)tandem_shape_elements(&tensor[k].shape));
        must(stored[k].start <= data_bytes && stored[k].bytes <= data_bytes - stored[k].start);
        for (int j = 0; j < k; j++)
            must(stored[j].start + stored[j].bytes <= stored[k].start ||
                 stored[k].start + stored[k].bytes <= stored[j].start);
        sum += stored[k].bytes;
    }
    must(sum == data_bytes);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const texts[] = {
        "{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"a.bias\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
        "\"n\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[28,36]}}",
        "{\"__metadata__\":{\"format\":\"pt\"},\"n\":{\"dtype\":\"F16\",\"shape\":[4],"
        "\"data_offsets\":[0,8]},"
        "\"a.bias\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
        "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]}}   ",
        "{\"a.wieght\":{\"dtype\":\"F64\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
        "[1]",
        "{\"a.bias\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[-1,1e400]}}",
        "{}",
    };
    enum { N_TEXT = sizeof texts / sizeof *texts };
    const uint8_t *seeds[N_TEXT];
    size_t seed_bytes[N_TEXT];
    for (int i = 0; i < N_TEXT; i++) {
        seeds[i] = (const uint8_t *)texts[i];
        seed_bytes[i] = strlen(texts[i]);
    }
    return tandem_fuzz_main("safetensors", LLVMFuzzerTestOneInput, seeds, seed_bytes, N_TEXT, argc, argv);
}
