/* folder: data */
/* Records of CIFAR: any bytes are refused, or give images whose labels the kind has. Inputs are short, so the
 * record lies in them several times: the first byte says of which kind it is, and how often. */
#include "data/cifar.h"
#include "tests/fuzz/fuzz_main.h"

enum { MAX_IMAGE = 4 };

static void unpack_images_of(const tandem_cifar_kind *kind, const uint8_t *bytes, size_t n)
{
    tandem_error error = {0};
    int64_t n_image = 4711;
    const tandem_status status = tandem_cifar_count(&n_image, kind, bytes, n, "input", &error);
    if (status != TANDEM_OK) {
        must(status == TANDEM_MALFORMED && n_image == 4711 && error.text[0]);
        return;
    }
    must(n_image > 0 && (size_t)n_image * (size_t)(kind->n_label + TANDEM_CIFAR_PIXELS) == n);
    uint8_t *const pixels = malloc((size_t)n_image * TANDEM_CIFAR_PIXELS), *const label =
                                                                               malloc((size_t)n_image);
    must(pixels && label);
    tandem_cifar_unpack(pixels, label, kind, bytes, n_image);
    for (int64_t i = 0; i < n_image; i++) {
        const uint8_t *const record = bytes + i * (kind->n_label + TANDEM_CIFAR_PIXELS);
        must(label[i] < kind->n_class && label[i] == record[kind->n_label - 1]);
        must(pixels[i * TANDEM_CIFAR_PIXELS + 4] ==
             record[kind->n_label + 1024 + 1]); /* green, second pixel */
    }
    free(pixels);
    free(label);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[MAX_IMAGE * (2 + TANDEM_CIFAR_PIXELS) + 256];
    for (int k = 0; k < TANDEM_CIFAR_KINDS; k++) {
        unpack_images_of(&tandem_cifar_kinds[k], data, size);
        if (size < 2) continue;
        const size_t whole = (size_t)(data[0] % (MAX_IMAGE + 1)) *
                             (size_t)(tandem_cifar_kinds[k].n_label + TANDEM_CIFAR_PIXELS);
        const size_t n = whole + (data[0] > 200 ? data[1] : 0);
        for (size_t i = 0; i < n; i++) bytes[i] = data[1 + i % (size - 1)];
        unpack_images_of(&tandem_cifar_kinds[k], bytes, n);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const uint8_t images[] = {2, 9, 1, 0, 3}, cut[] = {203, 7, 0, 1};
    static const uint8_t *const seeds[] = {images, cut};
    static const size_t seed_bytes[] = {sizeof images, sizeof cut};
    return tandem_fuzz_main("cifar", LLVMFuzzerTestOneInput, seeds, seed_bytes, 2, argc, argv);
}
