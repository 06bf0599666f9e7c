/* store_clocks.c: the clocks of devices while they were profiled. */
#include "profiles/store/store_handle.h"

tandem_status tandem_store_put_clocks(tandem_store *store, const char *device, int compute_mhz,
                                      int memory_mhz, tandem_error *error)
{
    tandem_status status = tandem_store_write_begin(store, error);
    if (status != TANDEM_OK) return status;
    status = tandem_store_add_device(store, device, error);
    if (status == TANDEM_OK)
        status = tandem_store_execute(store, error,
                                      "INSERT OR REPLACE INTO clock (device, compute_mhz, memory_mhz, host, "
                                      "time_ns) VALUES "
                                      "((SELECT id FROM device WHERE name = ?1), ?2, ?3, ?4, ?5)",
                                      "siiii", device, (int64_t)compute_mhz, (int64_t)memory_mhz, store->host,
                                      tandem_store_now_ns());
    return tandem_store_write_end(store, status, error);
}
