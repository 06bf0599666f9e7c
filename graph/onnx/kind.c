/* kind.c: what a file is that is no ONNX model, by how it begins. */
#include "graph/onnx/onnx_types.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/plain_text.h"

enum { HEAD = 512 };

static const struct {
    size_t at, n;
    const char *bytes, *is, *advice;
} kinds[] = {
    {0, 2, "\x80\x02", "a pickle of Python, such as an old file of PyTorch",
     "Load it, and export it with torch.onnx.export"},
    {0, 2, "\x80\x04", "a pickle of Python", "Load it, and export it with torch.onnx.export"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 file, such as one of Keras", "Export it with tf2onnx"},
    {4, 4, "TFL3", "a model of TensorFlow Lite", "Export it with tf2onnx"},
    {0, 4, "GGUF", "a GGUF file of weights", "Export the model that they are of with torch.onnx.export"},
    {0, 6, "\x93NUMPY", "an array of NumPy", "Export the model with torch.onnx.export"},
    {0, 2, "\x1f\x8b", "gzipped", "Unpack it with gunzip"},
    {0, 6,
     "\xfd"
     "7zXZ",
     "packed by xz", "Unpack it with unxz"},
    {0, 4, "\x28\xb5\x2f\xfd", "packed by zstd", "Unpack it with unzstd"},
    {0, 15, "SQLite format 3", "a database of SQLite", "Give the model itself"},
    {0, 4,
     "\x7f"
     "ELF",
     "a program", "Give the model itself"},
    {0, 24, "version https://git-lfs.", "a pointer of Git LFS, not the file that it names",
     "Fetch that with git lfs pull"},
    {0, 8, "\x89PNG\r\n\x1a\n", "an image", "Give the model itself"},
    {0, 3, "\xff\xd8\xff", "an image", "Give the model itself"},
};

static bool holds(const unsigned char *head, size_t n, const char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= n; i++)
        if (memcmp(head + i, text, length) == 0) return true;
    return false;
}

/* A zip archive is recognized by the name of its first file. */
static const char *kind_of_zip(const unsigned char *head, size_t n)
{
    if (holds(head, n, ".npy")) return "arrays of NumPy in a zip archive";
    return holds(head, n, "/data.pkl") || holds(head, n, "/version") || holds(head, n, "/byteorder") ||
                   holds(head, n, "/.format_version") || holds(head, n, "/constants.pkl")
               ? "a file of PyTorch (a zip archive)"
               : "a zip archive, as PyTorch writes";
}

static bool is_safetensors(const unsigned char *head, size_t n)
{
    return n > 9 && head[8] == '{' && (head[9] == '"' || head[9] == '}') && !head[5] && !head[6] && !head[7];
}

static bool is_text(const unsigned char *head, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((head[i] < 0x20 || head[i] == 0x7f) && !tandem_is_space((char)head[i])) return false;
    return n > 0;
}

static const char *kind_of(const unsigned char *head, size_t n, const char **advice)
{
    size_t first = 0;
    while (first < n && tandem_is_space((char)head[first])) first++;
    *advice = "Export the model with torch.onnx.export";
    if (n >= 4 && memcmp(head, "PK\3\4", 4) == 0) return kind_of_zip(head, n);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (n >= kinds[i].at + kinds[i].n && memcmp(head + kinds[i].at, kinds[i].bytes, kinds[i].n) == 0)
            return *advice = kinds[i].advice, kinds[i].is;
    if (is_safetensors(head, n)) return "a safetensors file: weights without a model";
    if (!is_text(head, n)) return NULL;
    if (first < n && (head[first] == '{' || head[first] == '[')) {
        *advice =
            "Give a captured module with its name, FILE.json, or export the model with torch.onnx.export";
        return "JSON";
    }
    if (first < n && head[first] == '<') return *advice = "Fetch the file itself", "a page of HTML or XML";
    return "text";
}

bool onnx_fail_kind(onnx_import *import, int64_t size)
{
    unsigned char head[HEAD];
    const char *advice = NULL;
    const ssize_t n = pread(import->file, head, sizeof head, 0);
    const char *const is = n > 0 ? kind_of(head, (size_t)n, &advice) : NULL;
    if (size == 0)
        return onnx_fail(import, TANDEM_MALFORMED,
                         "it is empty; allowed is an ONNX model. Export it again (torch.onnx.export)");
    if (is) return onnx_fail(import, TANDEM_MALFORMED, "it is %s; allowed is an ONNX model. %s", is, advice);
    return onnx_fail(import, TANDEM_MALFORMED,
                     "its %" PRId64 " bytes are no ONNX model, or not all of one; export it again "
                     "(torch.onnx.export)",
                     size);
}
