/* folder: backend */
/* Headers of files with published names, from any bytes: refused with a reason, or all values come from the
 * file. */
#include <unistd.h>

#include "backend/published.h"
#include "tests/fuzz/fuzz_main.h"

enum { N = 6, ROOM = 16, DATA = 256 };
static char path[] = "/tmp/tandem_published_XXXXXX";
static FILE *file;

static void write_published_file(const uint8_t *data, size_t size)
{
    static const float values[DATA / sizeof(float)] = {[0] = 1};
    const uint64_t header_bytes = size;
    if (!file) {
        const int made = mkstemp(path);
        must(made >= 0 && (file = fdopen(made, "wb")));
    }
    rewind(file);
    must(fwrite(&header_bytes, sizeof header_bytes, 1, file) == 1);
    must(size == 0 || fwrite(data, size, 1, file) == 1);
    must(fwrite(values, sizeof values, 1, file) == 1 && fflush(file) == 0);
    must(ftruncate(fileno(file), (off_t)(sizeof header_bytes + size + sizeof values)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const tandem_tensor empty[N] = {
        {"embedding.weight", {2, {2, 2}}, NULL},          {"position", {2, {1, 2}}, NULL},
        {"block0.attention.q.weight", {2, {2, 2}}, NULL}, {"block0.attention.k.bias", {1, {2}}, NULL},
        {"block0.mlp.fc1.weight", {2, {2, 4}}, NULL},     {"norm.weight", {1, {2}}, NULL}};
    float value[N][ROOM];
    tandem_tensor tensor[N];
    char said[TANDEM_TENSORS_SAID];
    tandem_error error = {0};
    int is_published = -1;
    for (int k = 0; k < N; k++) {
        tensor[k] = empty[k];
        tensor[k].value = value[k];
        for (int i = 0; i < ROOM; i++) value[k][i] = -1;
    }
    write_published_file(data, size);
    const tandem_status status =
        tandem_published_read(&is_published, said, tensor, N, "gpt2_small:layers=1", path, 1, &error);
    must(strlen(said) < sizeof said);
    if (status != TANDEM_OK) {
        must(error.status == status && error.text[0]);
        return 0;
    }
    for (int k = 0; k < N; k++)
        for (int i = 0; i < ROOM; i++) {
            const int is_set = is_published && i < tandem_shape_elements(&tensor[k].shape);
            must(is_set ? value[k][i] == 0 || value[k][i] == 1 : value[k][i] == -1);
        }
    return 0;
}

static void remove_published_file(void)
{
    if (file) (void)unlink(path);
}

int main(int argc, char **argv)
{
    static const char *const texts[] = {
        "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
        "\"wpe.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[16,24]},"
        "\"h.0.attn.c_attn.weight\":{\"dtype\":\"F32\",\"shape\":[2,6],\"data_offsets\":[24,72]},"
        "\"h.0.attn.c_attn.bias\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[72,96]},"
        "\"h.0.mlp.c_fc.weight\":{\"dtype\":\"F32\",\"shape\":[2,4],\"data_offsets\":[96,128]},"
        "\"ln_f.weight\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[128,136]},"
        "\"h.0.attn.bias\":{\"dtype\":\"U8\",\"shape\":[1,1],\"data_offsets\":[136,137]}}",
        "{\"transformer.wte.weight\":{\"dtype\":\"F16\",\"shape\":[2,2,1],\"data_offsets\":[0,8]}}",
        "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[2147483647,2147483647,2147483647,9],"
        "\"data_offsets\":[0,-1]}}",
        "{\"embedding.weight\":{}}",
        "[]",
    };
    enum { N_TEXT = sizeof texts / sizeof *texts };
    const uint8_t *seeds[N_TEXT];
    size_t seed_bytes[N_TEXT];
    for (int i = 0; i < N_TEXT; i++) {
        seeds[i] = (const uint8_t *)texts[i];
        seed_bytes[i] = strlen(texts[i]);
    }
    (void)atexit(remove_published_file);
    return tandem_fuzz_main("published", LLVMFuzzerTestOneInput, seeds, seed_bytes, N_TEXT, argc, argv);
}
