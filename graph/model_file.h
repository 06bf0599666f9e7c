/* model_file.h: which part of a model's name is that of a file. */
#pragma once

#include <stddef.h>
#include <string.h>

/* The characters of a model's name that name a file with this extension, ".onnx"; 0: it names none. */
static inline size_t tandem_model_file_length(const char *model, const char *extension)
{
    const size_t n = strlen(extension);
    for (const char *end = strstr(model, extension); end; end = strstr(end + 1, extension))
        if (end > model && (end[n] == '\0' || end[n] == ':')) return (size_t)(end - model) + n;
    return 0;
}
