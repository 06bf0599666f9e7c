/* mesh.c: addresses and secrets in the run's directory, and a loop that connects, accepts and turns away. */
#include "backend/comm/mesh.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/comm/patience.h"
#include "base/boot_id.h"

enum { SECRET_BYTES = 16, MAX_GUEST = 32, NETWORK_TEXT = TANDEM_BOOT_ID_BYTES + 24, HOST_TEXT = 65 };

/* Where a rank listens. */
typedef struct mesh_address {
    struct sockaddr_storage socket;
    socklen_t length;
    char host_number[INET6_ADDRSTRLEN + IF_NAMESIZE + 1], port[8];
    char network[NETWORK_TEXT]; /* kernel and network namespace: whose loopback address it is */
    char host[HOST_TEXT];
    unsigned char secret[SECRET_BYTES];
} mesh_address;

/* What the higher rank says first, and what it hears. Both ends are the same program. */
typedef struct mesh_hello {
    char magic[8];
    int32_t from, to;
    unsigned char secret_of_to[SECRET_BYTES], secret_of_from[SECRET_BYTES];
} mesh_hello;
typedef struct mesh_welcome {
    char magic[8];
    unsigned char secret_of_from[SECRET_BYTES];
} mesh_welcome;
static const char hello_magic[8] = "tandem>", welcome_magic[8] = "tandem<";

typedef enum link_state { LINK_IDLE, LINK_CONNECTING, LINK_ASKING, LINK_OPEN } link_state;

/* The connection with one rank. */
typedef struct mesh_link {
    link_state state;
    int file;        /* -1 = none */
    int code;        /* errno of the last try that failed; 0 = none */
    int64_t next_ns; /* when to try again */
    size_t n_read;
    mesh_welcome welcome;
} mesh_link;

/* A connection that has not said yet whose it is. */
typedef struct mesh_guest {
    int file;
    size_t n_read;
    mesh_hello hello;
} mesh_guest;

typedef struct mesh {
    const tandem_membership *membership;
    int listener;
    mesh_address *address;       /* [n_rank] */
    mesh_link *link;             /* [n_rank] */
    struct pollfd *poll;         /* [1 + n_rank + MAX_GUEST] */
    mesh_guest guest[MAX_GUEST]; /* the oldest first */
    int n_guest, n_open;
    int64_t n_stranger;
} mesh;

/* --- Addresses ------------------------------------------------------------------------------------------ */

static bool is_family_usable(const struct sockaddr *address)
{
    if (!address) return false;
    if (address->sa_family == AF_INET) return true;
    /* a link-local address means nothing without the name of an interface of the other host */
    return address->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* The first address of the interface, IPv4 before IPv6. */
static tandem_status find_interface_address(mesh_address *own, const char *interface, tandem_error *error)
{
    struct ifaddrs *all = NULL;
    const struct sockaddr *found = NULL;
    if (getifaddrs(&all) != 0)
        return tandem_error_set(error, TANDEM_IO, "cannot list the network interfaces: %s", strerror(errno));
    for (const struct ifaddrs *at = all; at; at = at->ifa_next)
        if (strcmp(at->ifa_name, interface) == 0 && is_family_usable(at->ifa_addr) &&
            (!found || (found->sa_family == AF_INET6 && at->ifa_addr->sa_family == AF_INET)))
            found = at->ifa_addr;
    if (found) {
        own->length = found->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        memcpy(&own->socket, found, own->length);
    }
    freeifaddrs(all);
    return found ? TANDEM_OK
                 : tandem_error_set(error, TANDEM_USAGE,
                                    "TANDEM_IFACE is '%s', but this network interface has no IPv4 or IPv6 "
                                    "address by which another host reaches it; `ip address` lists them",
                                    interface);
}

static void set_loopback_address(mesh_address *own)
{
    const struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    memcpy(&own->socket, &loopback, sizeof loopback);
    own->length = sizeof loopback;
}

static bool is_loopback(const mesh_address *address)
{
    const struct sockaddr_storage *socket = &address->socket;
    if (socket->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)socket)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)socket)->sin6_addr);
}

static tandem_status fail_socket(const char *what, tandem_error *error)
{
    return tandem_error_set(error, TANDEM_IO, "cannot %s a TCP socket for the other ranks: %s", what,
                            strerror(errno));
}

/* Opens the listener, and fills all that the others need to know of it. */
static tandem_status start_listening(mesh *m, const char *interface, tandem_error *error)
{
    mesh_address *own = &m->address[m->membership->rank];
    struct stat namespace = {0};
    char kernel[TANDEM_BOOT_ID_BYTES];
    tandem_status status = TANDEM_OK;
    if (interface)
        status = find_interface_address(own, interface, error);
    else
        set_loopback_address(own);
    if (status != TANDEM_OK) return status;
    m->listener = socket(own->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (m->listener < 0) return fail_socket("open", error);
    if (bind(m->listener, (const struct sockaddr *)&own->socket, own->length) != 0)
        return fail_socket("bind", error);
    if (listen(m->listener, SOMAXCONN) != 0 ||
        getsockname(m->listener, (struct sockaddr *)&own->socket, &own->length) != 0 ||
        getnameinfo((const struct sockaddr *)&own->socket, own->length, own->host_number,
                    sizeof own->host_number, own->port, sizeof own->port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return fail_socket("listen on", error);
    tandem_boot_id(kernel);
    kernel[strcspn(kernel, " \n")] = '\0';
    (void)stat("/proc/self/ns/net", &namespace);
    (void)snprintf(own->network, sizeof own->network, "%s/%" PRIu64, *kernel ? kernel : "-",
                   (uint64_t) namespace.st_ino);
    if (gethostname(own->host, sizeof own->host - 1) != 0 || !*own->host)
        (void)snprintf(own->host, sizeof own->host, "-");
    if (getrandom(own->secret, sizeof own->secret, 0) != (ssize_t)sizeof own->secret)
        return tandem_error_set(error, TANDEM_IO, "cannot draw a secret for the ranks: %s", strerror(errno));
    return TANDEM_OK;
}

enum { ADDRESS_TEXT = 512, SECRET_TEXT = 2 * SECRET_BYTES + 1 };

static tandem_status publish_address(const mesh *m, tandem_error *error)
{
    const mesh_address *own = &m->address[m->membership->rank];
    char text[ADDRESS_TEXT], secret[SECRET_TEXT];
    for (int k = 0; k < SECRET_BYTES; k++) (void)snprintf(secret + 2 * k, 3, "%02x", own->secret[k]);
    (void)snprintf(text, sizeof text, "%s %s %s %s %s .\n", own->host_number, own->port, own->network,
                   own->host, secret);
    return tandem_membership_write_address(m->membership, text, error);
}

static bool read_secret(unsigned char secret[SECRET_BYTES], const char *text)
{
    for (int k = 0; k < SECRET_BYTES; k++) {
        unsigned byte = 0;
        if (sscanf(text + 2 * k, "%2x", &byte) != 1) return false;
        secret[k] = (unsigned char)byte;
    }
    return text[2 * SECRET_BYTES] == '\0';
}

/* false: rank r has written no address yet. */
static bool read_address(mesh_address *address, const tandem_membership *membership, int r)
{
    char text[ADDRESS_TEXT], secret[SECRET_TEXT], end = 0;
    mesh_address read = {0};
    if (!tandem_membership_read_address(membership, r, text, sizeof text)) return false;
    _Static_assert(sizeof read.host_number == 63 && sizeof read.port == 8 && NETWORK_TEXT == 72 &&
                       HOST_TEXT == 65 && SECRET_TEXT == 33,
                   "the widths below are theirs");
    if (sscanf(text, "%62s %7s %71s %64s %32s %c", read.host_number, read.port, read.network, read.host,
               secret, &end) != 6 ||
        end != '.' || strlen(secret) != 2 * SECRET_BYTES || !read_secret(read.secret, secret))
        return false;
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (getaddrinfo(read.host_number, read.port, &numeric, &found) != 0) return false;
    memcpy(&read.socket, found->ai_addr, found->ai_addrlen);
    read.length = found->ai_addrlen;
    freeaddrinfo(found);
    *address = read;
    return true;
}

static tandem_status fail_waiting(const mesh *m, tandem_patience *patience, int64_t timeout_ns,
                                  tandem_error *error)
{
    if (tandem_membership_is_broken(m->membership))
        return tandem_error_set(error, TANDEM_RANK_FAILED, "the run failed meanwhile");
    if (tandem_patience_ends(patience, timeout_ns))
        return tandem_error_set(error, TANDEM_RANK_FAILED, "timed out");
    return TANDEM_OK;
}

static tandem_status read_all_addresses(mesh *m, tandem_patience *patience, int64_t timeout_ns,
                                        tandem_error *error)
{
    for (int r = 0; r < m->membership->n_rank;) {
        if (r == m->membership->rank || read_address(&m->address[r], m->membership, r)) {
            r++;
            continue;
        }
        const tandem_status status = fail_waiting(m, patience, timeout_ns, error);
        if (status != TANDEM_OK) return status;
        (void)poll(NULL, 0, 5);
    }
    return TANDEM_OK;
}

/* A loopback address is of use only where it was given. All ranks read the same addresses, and find the
 * same. */
static tandem_status check_reachable(const mesh *m, tandem_error *error)
{
    for (int r = 0; r < m->membership->n_rank; r++)
        for (int other = 0; is_loopback(&m->address[r]) && other < m->membership->n_rank; other++)
            if (strcmp(m->address[r].network, m->address[other].network) != 0)
                return tandem_error_set(
                    error, TANDEM_USAGE,
                    "rank %d listens on the loopback address %s of host '%s', which rank %d on host '%s' "
                    "cannot reach. Set TANDEM_IFACE on every rank to its interface of the network between "
                    "the hosts; `ip address` lists them",
                    r, m->address[r].host_number, m->address[r].host, other, m->address[other].host);
    return TANDEM_OK;
}

/* --- To a lower rank ------------------------------------------------------------------------------------ */

static const int64_t retry_ns = 50000000;

static void link_failed(mesh_link *link, int code)
{
    if (link->file >= 0) (void)close(link->file);
    *link = (mesh_link){.file = -1, .code = code, .next_ns = tandem_now_ns() + retry_ns};
}

static void begin_link(mesh *m, int r)
{
    mesh_link *link = &m->link[r];
    const mesh_address *to = &m->address[r];
    link->file = socket(to->socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->file < 0 || (connect(link->file, (const struct sockaddr *)&to->socket, to->length) != 0 &&
                           errno != EINPROGRESS)) {
        link_failed(link, errno);
        return;
    }
    link->state = LINK_CONNECTING;
}

static void say_hello(mesh *m, int r)
{
    mesh_link *link = &m->link[r];
    int code = 0;
    socklen_t length = sizeof code;
    mesh_hello hello = {.from = m->membership->rank, .to = r};
    memcpy(hello.magic, hello_magic, sizeof hello.magic);
    memcpy(hello.secret_of_to, m->address[r].secret, SECRET_BYTES);
    memcpy(hello.secret_of_from, m->address[m->membership->rank].secret, SECRET_BYTES);
    if (getsockopt(link->file, SOL_SOCKET, SO_ERROR, &code, &length) != 0) code = errno;
    if (code == 0 && send(link->file, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        code = errno ? errno : EPIPE;
    if (code)
        link_failed(link, code);
    else
        link->state = LINK_ASKING;
}

static void hear_welcome(mesh *m, int r)
{
    mesh_link *link = &m->link[r];
    const ssize_t n =
        recv(link->file, (char *)&link->welcome + link->n_read, sizeof link->welcome - link->n_read, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        link_failed(link, n < 0 ? errno : ECONNRESET);
        return;
    }
    link->n_read += (size_t)n;
    if (link->n_read < sizeof link->welcome) return;
    if (memcmp(link->welcome.magic, welcome_magic, sizeof welcome_magic) != 0 ||
        memcmp(link->welcome.secret_of_from, m->address[m->membership->rank].secret, SECRET_BYTES) != 0) {
        link_failed(link, EPROTO);
        return;
    }
    link->state = LINK_OPEN;
    m->n_open++;
}

/* --- From a higher rank, or a stranger ------------------------------------------------------------------ */

static void forget_guest(mesh *m, int g)
{
    m->n_guest--;
    memmove(&m->guest[g], &m->guest[g + 1], (size_t)(m->n_guest - g) * sizeof *m->guest);
}

static void turn_away(mesh *m, int g)
{
    (void)close(m->guest[g].file);
    forget_guest(m, g);
    m->n_stranger++;
}

static bool is_hello_of_rank(const mesh *m, const mesh_hello *hello)
{
    return memcmp(hello->magic, hello_magic, sizeof hello_magic) == 0 && hello->to == m->membership->rank &&
           hello->from > m->membership->rank && hello->from < m->membership->n_rank &&
           memcmp(hello->secret_of_to, m->address[hello->to].secret, SECRET_BYTES) == 0 &&
           memcmp(hello->secret_of_from, m->address[hello->from].secret, SECRET_BYTES) == 0;
}

/* A rank that comes twice has lost its first connection. */
static void welcome_rank(mesh *m, int g)
{
    const mesh_guest guest = m->guest[g];
    mesh_link *link = &m->link[guest.hello.from];
    mesh_welcome welcome = {.magic = ""};
    memcpy(welcome.magic, welcome_magic, sizeof welcome.magic);
    memcpy(welcome.secret_of_from, guest.hello.secret_of_from, SECRET_BYTES);
    forget_guest(m, g);
    if (send(guest.file, &welcome, sizeof welcome, MSG_NOSIGNAL) != (ssize_t)sizeof welcome) {
        (void)close(guest.file);
        return;
    }
    if (link->state == LINK_OPEN)
        (void)close(link->file);
    else
        m->n_open++;
    *link = (mesh_link){.state = LINK_OPEN, .file = guest.file};
}

/* Returns whether the guest is still there. */
static bool hear_guest(mesh *m, int g)
{
    mesh_guest *guest = &m->guest[g];
    const ssize_t n =
        recv(guest->file, (char *)&guest->hello + guest->n_read, sizeof guest->hello - guest->n_read, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n > 0) guest->n_read += (size_t)n;
    if (n > 0 && guest->n_read < sizeof guest->hello) return true;
    if (n > 0 && is_hello_of_rank(m, &guest->hello))
        welcome_rank(m, g);
    else
        turn_away(m, g);
    return false;
}

/* Takes what waits at the door, no more than there can be guests, so that a flood stops nothing else. */
static tandem_status accept_guests(mesh *m, tandem_error *error)
{
    for (int k = 0; k < MAX_GUEST; k++) {
        if (m->n_guest == MAX_GUEST) turn_away(m, 0);
        const int file = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (file >= 0) {
            m->guest[m->n_guest++] = (mesh_guest){.file = file};
            (void)hear_guest(m, m->n_guest - 1);
            continue;
        }
        if (errno == EAGAIN) return TANDEM_OK;
        if ((errno == EMFILE || errno == ENFILE) && m->n_guest > 0) { /* strangers hold them */
            turn_away(m, 0);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == EBADF || errno == EINVAL)
            return fail_socket("accept from", error);
        /* other errors are those of a connection that ended before it was accepted */
    }
    return TANDEM_OK;
}

/* --- All together --------------------------------------------------------------------------------------- */

static nfds_t list_sockets(mesh *m)
{
    nfds_t n = 0;
    m->poll[n++] = (struct pollfd){.fd = m->listener, .events = POLLIN};
    for (int r = 0; r < m->membership->rank; r++) {
        const mesh_link *link = &m->link[r];
        const bool is_waiting = link->state == LINK_CONNECTING || link->state == LINK_ASKING;
        m->poll[n++] = (struct pollfd){.fd = is_waiting ? link->file : -1,
                                       .events = link->state == LINK_CONNECTING ? POLLOUT : POLLIN};
    }
    for (int g = 0; g < m->n_guest; g++)
        m->poll[n++] = (struct pollfd){.fd = m->guest[g].file, .events = POLLIN};
    return n;
}

static tandem_status serve_sockets(mesh *m, tandem_error *error)
{
    const int n_link = m->membership->rank;
    for (int r = 0; r < n_link; r++)
        if (m->link[r].state == LINK_IDLE && tandem_now_ns() >= m->link[r].next_ns) begin_link(m, r);
    const int n_guest = m->n_guest;
    if (poll(m->poll, list_sockets(m), 50) < 0) return TANDEM_OK; /* a signal */
    for (int r = 0; r < n_link; r++) {
        if (!m->poll[1 + r].revents) continue;
        if (m->link[r].state == LINK_CONNECTING)
            say_hello(m, r);
        else
            hear_welcome(m, r);
    }
    for (int g = n_guest - 1; g >= 0; g--) /* a guest that goes moves only later ones */
        if (m->poll[1 + n_link + g].revents) (void)hear_guest(m, g);
    return m->poll[0].revents ? accept_guests(m, error) : TANDEM_OK;
}

/* Adds to the text of a time-out which rank was waited for, and why in vain. */
static void name_missing_link(const mesh *m, const char *why, tandem_error *error)
{
    int r = 0;
    while (r < m->membership->n_rank - 1 && (r == m->membership->rank || m->link[r].state == LINK_OPEN)) r++;
    const mesh_address *own = &m->address[m->membership->rank], *to = &m->address[r];
    const mesh_link *link = &m->link[r];
    char strangers[80] = "";
    if (m->n_stranger > 0)
        (void)snprintf(strangers, sizeof strangers, "; %lld connections of others were turned away",
                       (long long)m->n_stranger);
    if (r < m->membership->rank)
        (void)tandem_error_set(error, TANDEM_RANK_FAILED,
                               "%s; rank %d on host '%s' cannot connect to rank %d at %s port %s on host "
                               "'%s': %s%s; TANDEM_IFACE chooses the interface of each rank",
                               why, m->membership->rank, own->host, r, to->host_number, to->port, to->host,
                               link->code ? strerror(link->code) : "no answer", strangers);
    else
        (void)tandem_error_set(error, TANDEM_RANK_FAILED,
                               "%s; rank %d on host '%s' did not connect to rank %d at %s port %s on host "
                               "'%s'%s; TANDEM_IFACE chooses the interface of each rank",
                               why, r, to->host, m->membership->rank, own->host_number, own->port, own->host,
                               strangers);
}

static tandem_status connect_links(mesh *m, tandem_patience *patience, int64_t timeout_ns,
                                   tandem_error *error)
{
    tandem_status status = TANDEM_OK;
    tandem_error why = {TANDEM_OK, -1, ""};
    while (status == TANDEM_OK && m->n_open < m->membership->n_rank - 1) {
        status = serve_sockets(m, error);
        if (status != TANDEM_OK || m->n_open == m->membership->n_rank - 1) break;
        status = fail_waiting(m, patience, timeout_ns, &why);
        if (status != TANDEM_OK) name_missing_link(m, why.text, error);
    }
    while (m->n_guest > 0) turn_away(m, 0);
    return status;
}

static void close_mesh(mesh *m, bool with_links)
{
    for (int r = 0; m->link && with_links && r < m->membership->n_rank; r++)
        if (m->link[r].file >= 0) (void)close(m->link[r].file);
    if (m->listener >= 0) (void)close(m->listener);
    free(m->address);
    free(m->link);
    free(m->poll);
    free(m);
}

tandem_status tandem_mesh_connect(int *file, int64_t *n_stranger, const tandem_mesh_options *options,
                                  tandem_error *error)
{
    const size_t n_rank = (size_t)options->membership->n_rank;
    mesh *m = calloc(1, sizeof *m);
    if (!m) return tandem_no_memory(error, "to connect %zu ranks", n_rank);
    m->membership = options->membership;
    m->listener = -1;
    m->address = calloc(n_rank, sizeof *m->address);
    m->link = calloc(n_rank, sizeof *m->link);
    m->poll = calloc(1 + n_rank + MAX_GUEST, sizeof *m->poll);
    for (size_t r = 0; m->link && r < n_rank; r++) m->link[r].file = -1;
    tandem_status status = m->address && m->link && m->poll
                               ? TANDEM_OK
                               : tandem_no_memory(error, "to connect %zu ranks", n_rank);
    tandem_patience patience = tandem_patience_begin();
    if (status == TANDEM_OK) status = start_listening(m, options->interface, error);
    if (status == TANDEM_OK) status = publish_address(m, error);
    if (status == TANDEM_OK) status = read_all_addresses(m, &patience, options->timeout_ns, error);
    if (status == TANDEM_OK) status = check_reachable(m, error);
    if (status == TANDEM_OK) status = connect_links(m, &patience, options->timeout_ns, error);
    if (status == TANDEM_OK) {
        for (size_t r = 0; r < n_rank; r++) file[r] = m->link[r].file;
        *n_stranger = m->n_stranger;
    }
    close_mesh(m, status != TANDEM_OK);
    return status;
}
