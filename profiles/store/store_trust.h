/* store_trust.h: what a file must be before its rows are read; private to profiles/store. */
#ifndef TANDEM_PROFILES_STORE_TRUST_H
#define TANDEM_PROFILES_STORE_TRUST_H

#include <stdbool.h>
#include <stdint.h>

#include "profiles/store/store_handle.h"

/* A store, or its log, may be so large; a text or a row in it may be so long. */
enum { TANDEM_STORE_MAX_BYTES = 1 << 30, TANDEM_STORE_MAX_TEXT = 64 << 20 };

static inline uint32_t tandem_store_big_endian(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* tandem_store_check_companions: before SQLite opens the path: the log and the journal beside it, which it
 * would copy into the file. TANDEM_MALFORMED: one is no regular file, another user may have put it there, or
 * it is a journal that tandem cannot have left. */
tandem_status tandem_store_check_companions(const char *path, tandem_error *error);

/* tandem_store_check_target: TANDEM_IO where writing to the path would follow a link of another user
 * (path.h). */
tandem_status tandem_store_check_target(const char *path, tandem_error *error);

/* tandem_store_distrust: before the first statement: SQLite runs no view, trigger or unsafe function of the
 * file, and loads no more of a schema than ours has. tandem_store_trust: the limits of the product's own
 * statements, once the schema and the pages have been checked. */
tandem_status tandem_store_distrust(tandem_store *store, tandem_error *error);
tandem_status tandem_store_trust(tandem_store *store, int64_t file_bytes, tandem_error *error);

/* tandem_store_check_schema: TANDEM_WRONG_FORMAT unless the objects of the file are ours (objects.def), text
 * for text; is_empty: unless there is none. */
tandem_status tandem_store_check_schema(tandem_store *store, bool is_empty, tandem_error *error);
/* TANDEM_MALFORMED: pages that are used twice, lead nowhere, or are no pages. Reads the whole file. */
tandem_status tandem_store_check_pages(tandem_store *store, int64_t file_bytes, tandem_error *error);

#endif
