/* own_folder.h: where this library, or the program that has it, lies. */
#pragma once

#include <stddef.h>

/* The folder of the file with this code; "." where that is not known. */
void own_folder(char *folder, size_t size);
