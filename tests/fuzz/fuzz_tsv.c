/* folder: data */
/* Tables of texts and labels: any bytes are refused, or give samples whose tokens and labels are in range. */
#include "data/tsv.h"
#include "tests/fuzz/fuzz_main.h"

enum { LENGTH = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_data table = {.n_text = 4711};
    tandem_error error = {0};
    const tandem_status status = tandem_tsv_from_bytes(&table, LENGTH, data, size, "input", &error);
    if (status != TANDEM_OK) {
        must(status == TANDEM_MALFORMED && table.n_text == 4711 && error.text[0]);
        return 0;
    }
    const int64_t n = table.n_train + table.n_test;
    must(table.n_train > 0 && table.n_test > 0 && table.n_text <= (int64_t)size && table.n_symbol <= 256);
    must(table.start[0] == 0 && table.start[n] == table.n_text - 1);
    for (int64_t i = 0; i < n; i++) {
        int32_t token[LENGTH], label;
        const int test = i >= table.n_train;
        tandem_data_read_text_class(&table, test, test ? i - table.n_train : i, token, &label);
        must(table.start[i + 1] > table.start[i] && table.start[i + 1] - table.start[i] <= LENGTH);
        must(label >= 0 && label < table.n_class);
        for (int k = 0; k < LENGTH; k++) must(token[k] >= 0 && token[k] < table.n_symbol);
    }
    tandem_data_close(&table);
    return 0;
}

int main(int argc, char **argv)
{
    static const char numbers[] =
        "label\ttext\n0\ta\n1\tbc\n2\tc\n0\tabcdef\n1\te\n1\tf\n0\tg\n3\th\n0\ti\n1\tj";
    static const char names[] = "sentence\tlabel\r\na\tx\r\nb\ty\r\nc\tx\r\nd\tyy\r\ne\tx\r\nf\tz\r\ng\tx\r\n"
                                "h\tx\r\ni\tq\r\njkl\tx\r\nm\t1\r\n";
    static const uint8_t *const seeds[] = {(const uint8_t *)numbers, (const uint8_t *)names};
    static const size_t seed_bytes[] = {sizeof numbers - 1, sizeof names - 1};
    return tandem_fuzz_main("tsv", LLVMFuzzerTestOneInput, seeds, seed_bytes, 2, argc, argv);
}
