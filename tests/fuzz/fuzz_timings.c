/* folder: predictor */
/* Any bytes as a timing table: every row that is visited has a finite, positive time and sizes, and a work or
 * an error with a text. An import of the same bytes counts every row once, refuses what the reader refuses,
 * and takes no less with force. */
#include <math.h>

#include "tandem/advanced/timings.h"
#include "tests/fuzz/fuzz_main.h"

static tandem_status check_row(void *context, const tandem_timing *timing, tandem_error *error)
{
    tandem_error why = {0};
    tandem_work work = {.bytes = -7};
    tandem_device device;
    (void)context;
    (void)error;
    demand(timing->time_ns >= 0 && timing->time_ns <= 1e15, "a time is in its bounds");
    demand(timing->repeats >= 1 && timing->m >= 0 && timing->rows >= 0, "a size is not negative");
    demand(timing->kind[TANDEM_TIMING_TEXT - 1] == '\0', "a text ends");
    if (tandem_timing_work(&work, timing, &why) != TANDEM_OK) {
        demand(work.bytes == -7 && why.text[0], "a refusal has a text and no output");
        return TANDEM_OK;
    }
    demand(isfinite(work.flops) && isfinite(work.bytes) && work.bytes > 0, "a work is finite");
    if (tandem_timing_device(&device, timing->device, NULL) == TANDEM_OK &&
        tandem_device_is_described(&device)) {
        const double ns = tandem_described_ns(&device, &work);
        demand(ns == -1 || ns > 0, "a time is positive");
    }
    return TANDEM_OK;
}

/* The status of an import that files nothing. */
static tandem_status check_import(const uint8_t *data, size_t size, int force)
{
    tandem_import *import = NULL;
    tandem_error error = {0};
    FILE *const stream = fmemopen((void *)(uintptr_t)data, size, "r");
    demand(stream != NULL, "memory is a stream");
    demand(tandem_import_open(&import, NULL, "t4", force, &error) == TANDEM_OK, "an import opens");
    const tandem_status status = tandem_import_read(import, stream, "table", &error);
    const tandem_import_summary *const s = tandem_import_summary_of(import);
    int64_t n_reason = 0;
    for (int i = 0; i < s->n_reason; i++) {
        n_reason += s->reason[i].n_row;
        demand(s->reason[i].why[0] && s->reason[i].n_row > 0 && s->reason[i].line > 1, "a reason is said");
    }
    if (status == TANDEM_OK)
        demand(s->n_row == s->n_filed + s->n_known + s->n_left_out, "every row counts once");
    else
        demand(error.text[0], "a refusal has a text");
    demand(n_reason <= s->n_left_out && (s->n_filed == 0 || s->n_device > 0), "counts agree");
    tandem_import_close(import);
    (void)fclose(stream);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tandem_error error = {0};
    if (size < 1) return 0;
    const tandem_status plain = check_import(data, size, 0), forced = check_import(data, size, 1);
    demand(plain != TANDEM_OK || forced == TANDEM_OK, "force refuses no more");
    FILE *const stream = fmemopen((void *)(uintptr_t)data, size, "r");
    demand(stream != NULL, "memory is a stream");
    const tandem_status read = tandem_timings_read(stream, "table", 1, check_row, NULL, &error);
    demand(read == TANDEM_OK || error.text[0], "a refusal has a text");
    demand(read == TANDEM_OK || forced != TANDEM_OK, "an import refuses what the reader refuses");
    (void)fclose(stream);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const seeds[] = {
        "device,operator,precision,pass,batch,m,k,n,time_us\nT4,matmul,fp16,dgrad,8,512,64,512,33.5\n",
        "\xEF\xBB\xBFtime_ms,rows,columns,operator,precision,device\r\n0.5,1000,2000,softmax,fp32,a100\r\n",
        "images,channels_in,height,width,channels_out,kernel_h,kernel_w,pad_h,pad_w,stride_h,stride_w,"
        "precision,pass,device,time_ns\n16,64,56,56,64,3,3,1,1,1,1,fp32,wgrad,\"V100-PCIe-32GB\",2e6\n",
        "operator,precision,method,repeats,group,rows,columns,time_us\n"
        "pow,fp32,\"events,\"\"z\"\"\",24,x,1,1,9\n",
        "operator,precision,m,k,n,device,time_us\nlinear,fp32,8,8,8,t4,9\nlinear,fp32,8,8,8,t4,99\n"
        "linear,fp32,8,8,8,t4,9\nlinear,bf16,8,8,8,p100,9\nlinear,fp32,8,8,8,nobody,9\n",
    };
    enum { N = sizeof seeds / sizeof *seeds };
    const uint8_t *bytes[N];
    size_t n[N];
    for (int i = 0; i < N; i++) {
        bytes[i] = (const uint8_t *)seeds[i];
        n[i] = strlen(seeds[i]);
    }
    return tandem_fuzz_main("timings", LLVMFuzzerTestOneInput, bytes, n, N, argc, argv);
}
