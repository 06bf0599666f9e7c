/* gloo.cc: the C++ side of gloo_shim.h, and tandem's only C++ file. */
#include "backend/comm/gloo_shim.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>

#include <gloo/config.h>
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/unbound_buffer.h>

namespace
{

using std::chrono::milliseconds;

/* A descriptor in Gloo's event loop that is readable while a thread posts messages. The loop then calls its
 * handler before it looks at any connection twice, and the handler waits. */
class StopSign : public gloo::transport::tcp::Handler
{
  public:
    StopSign() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE))
    {
        if (fd_ < 0) throw std::runtime_error("no descriptor is left for an eventfd");
    }
    ~StopSign() override { close(fd_); }
    StopSign(const StopSign &) = delete;
    StopSign &operator=(const StopSign &) = delete;

    int fd() const { return fd_; }

    void raise_sign()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            n_poster_++;
        }
        const uint64_t one = 1;
        (void)!write(fd_, &one, sizeof one);
    }

    void lower_sign()
    {
        uint64_t one;
        (void)!read(fd_, &one, sizeof one);
        std::lock_guard<std::mutex> lock(mutex_);
        if (--n_poster_ == 0) lowered_.notify_one();
    }

    /* Keeps Gloo's thread in the handler until unpark(). */
    void park()
    {
        raise_sign();
        std::unique_lock<std::mutex> lock(mutex_);
        is_parking_ = true;
        changed_.wait(lock, [this] { return is_parked_; });
    }

    void unpark()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            is_parking_ = false;
            changed_.notify_all();
        }
        lower_sign();
    }

    /* Runs on Gloo's thread. The wait is bounded, because a posting thread that meets a broken connection
     * waits for the loop; nobody posts while it is parked. */
    void handleEvents(int) override
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (is_parking_) {
            is_parked_ = true;
            changed_.notify_all();
            changed_.wait(lock, [this] { return !is_parking_; });
            is_parked_ = false;
            return;
        }
        lowered_.wait_for(lock, milliseconds(20), [this] { return n_poster_ == 0; });
    }

  private:
    const int fd_;
    int n_poster_ = 0;
    bool is_parking_ = false, is_parked_ = false;
    std::mutex mutex_;
    std::condition_variable lowered_, changed_;
};

/* A connection that mesh.c has made. Gloo's own pair listens as soon as it exists, and takes whoever connects
 * first for the other rank. Here the connected socket takes the place of the listening one before Gloo's
 * thread has looked at it, which is parked meanwhile. */
class MeshPair : public gloo::transport::tcp::Pair
{
  public:
    using Pair::Pair;

    void adopt(int connected)
    {
        std::lock_guard<std::mutex> lock(m_);
        if (dup3(connected, fd_, O_CLOEXEC) < 0) throw std::runtime_error("Gloo cannot take a socket");
        handleConnected();
    }
};

class MeshContext : public gloo::transport::tcp::Context
{
  public:
    using Context::Context;

    void adopt(int rank, int connected)
    {
        auto pair = std::make_unique<MeshPair>(this, device_.get(), rank, getTimeout());
        pair->adopt(connected);
        pairs_[static_cast<size_t>(rank)] = std::move(pair);
    }
};

/* Time-outs are watch.h's, which Gloo's would only disturb. It must be added to the time of day. */
constexpr auto for_ever = std::chrono::hours(24 * 365 * 10);

void set_error_text(tandem_gloo_error *reason, const char *text)
{
    const char *words = text[0] == '[' ? std::strstr(text, "] ") : nullptr; /* "[file:line] words" */
    std::snprintf(reason->text, sizeof reason->text, "%s", words ? words + 2 : text);
}

/* Runs `body` and turns its exceptions into results. */
template <typename Body> tandem_gloo_result run_guarded(tandem_gloo_error *reason, Body body)
{
    try {
        body();
        return TANDEM_GLOO_OK;
    } catch (const std::bad_alloc &) {
        set_error_text(reason, "out of memory");
        return TANDEM_GLOO_NO_MEMORY;
    } catch (const std::exception &exception) {
        set_error_text(reason, exception.what());
    } catch (...) {
        set_error_text(reason, "an unknown exception");
    }
    return TANDEM_GLOO_FAILED;
}

} // namespace

struct tandem_gloo {
    StopSign sign; /* outlives the device, whose thread calls it */
    std::shared_ptr<gloo::transport::tcp::Device> device;
    std::shared_ptr<MeshContext> context;

    std::mutex mutex; /* guards all below, and the links of the buffers */
    bool aborted = false;
    tandem_gloo_buffer *first = nullptr; /* of the list of open buffers */

    ~tandem_gloo()
    {
        context.reset();
        if (device) device->unregisterDescriptor(sign.fd(), &sign);
    }
};

struct tandem_gloo_buffer {
    tandem_gloo *const gloo;
    const std::unique_ptr<gloo::transport::UnboundBuffer> unbound;
    int64_t left_ns = 0; /* of a thread's wait */
    bool is_waiting = false, has_timed_out = false;
    tandem_gloo_buffer *previous = nullptr, *next = nullptr;

    tandem_gloo_buffer(tandem_gloo *owner, void *data, size_t bytes)
        : gloo(owner), unbound(owner->context->createUnboundBuffer(data, bytes))
    {
        std::lock_guard<std::mutex> lock(gloo->mutex);
        next = gloo->first;
        if (next) next->previous = this;
        gloo->first = this;
    }

    ~tandem_gloo_buffer()
    {
        std::lock_guard<std::mutex> lock(gloo->mutex);
        (previous ? previous->next : gloo->first) = next;
        if (next) next->previous = previous;
    }

    /* `wait` blocks until a message has moved, and returns false where it was woken by an abort. */
    template <typename Wait> void wait_within(int64_t timeout_ms, Wait wait)
    {
        {
            std::lock_guard<std::mutex> lock(gloo->mutex);
            if (gloo->aborted) throw std::runtime_error(aborted_text);
            left_ns = timeout_ms * 1000000;
            is_waiting = true;
        }
        bool has_moved = false;
        try {
            has_moved = wait();
        } catch (...) {
            stop_waiting();
            throw;
        }
        if (stop_waiting()) throw std::runtime_error("timed out");
        if (!has_moved) throw std::runtime_error(aborted_text);
    }

    /* Returns whether the wait took too long. */
    bool stop_waiting()
    {
        std::lock_guard<std::mutex> lock(gloo->mutex);
        is_waiting = false;
        return has_timed_out;
    }

    static constexpr const char *aborted_text = "the connection is lost";
};

tandem_gloo_result tandem_gloo_open(tandem_gloo **gloo, const char *interface, tandem_gloo_error *reason)
{
    return run_guarded(reason, [&] {
        auto made = std::make_unique<tandem_gloo>();
        gloo::transport::tcp::attr attributes;
        if (interface)
            attributes.iface = interface;
        else
            attributes.hostname = "127.0.0.1";
        auto device = std::dynamic_pointer_cast<gloo::transport::tcp::Device>(
            gloo::transport::tcp::CreateDevice(attributes));
        if (!device) throw std::runtime_error("Gloo's TCP device is not what its header says");
        device->registerDescriptor(made->sign.fd(), EPOLLIN, &made->sign);
        made->device = std::move(device);
        *gloo = made.release();
    });
}

tandem_gloo_result tandem_gloo_connect(tandem_gloo *gloo, const int *file, int rank, int n_rank,
                                       tandem_gloo_error *reason)
{
    return run_guarded(reason, [&] {
        auto context = std::make_shared<MeshContext>(gloo->device, rank, n_rank);
        context->setTimeout(for_ever);
        gloo->sign.park();
        const auto result = run_guarded(reason, [&] {
            for (int r = 0; r < n_rank; r++)
                if (r != rank) context->adopt(r, file[r]);
        });
        gloo->sign.unpark();
        if (result == TANDEM_GLOO_NO_MEMORY) throw std::bad_alloc();
        if (result != TANDEM_GLOO_OK) throw std::runtime_error(reason->text);
        gloo->context = std::move(context);
    });
}

/* With the mutex held. */
static void abort_all_waits(tandem_gloo *gloo)
{
    gloo->aborted = true;
    for (tandem_gloo_buffer *buffer = gloo->first; buffer; buffer = buffer->next) {
        buffer->unbound->abortWaitRecv();
        buffer->unbound->abortWaitSend();
    }
}

void tandem_gloo_count_wait(tandem_gloo *gloo, int64_t ns)
{
    std::lock_guard<std::mutex> lock(gloo->mutex);
    bool has_timed_out = false;
    for (tandem_gloo_buffer *buffer = gloo->first; buffer; buffer = buffer->next) {
        if (!buffer->is_waiting || (buffer->left_ns -= ns) > 0) continue;
        buffer->has_timed_out = has_timed_out = true;
    }
    if (has_timed_out) abort_all_waits(gloo);
}

void tandem_gloo_abort(tandem_gloo *gloo)
{
    std::lock_guard<std::mutex> lock(gloo->mutex);
    abort_all_waits(gloo);
}

void tandem_gloo_break(tandem_gloo *gloo)
{
    if (!gloo || !gloo->context) return;
    tandem_gloo_abort(gloo);
    /* Gloo has no call that closes all connections, but a receive that times out makes it do so. */
    tandem_gloo_error reason;
    run_guarded(&reason, [&] {
        char nothing = 0;
        gloo->context->createUnboundBuffer(&nothing, sizeof nothing)->waitRecv(milliseconds(1));
    });
}

void tandem_gloo_close(tandem_gloo *gloo)
{
    tandem_gloo_error reason;
    run_guarded(&reason, [&] { delete gloo; });
}

tandem_gloo_result tandem_gloo_buffer_open(tandem_gloo_buffer **buffer, tandem_gloo *gloo, void *data,
                                           size_t bytes, tandem_gloo_error *reason)
{
    return run_guarded(reason, [&] { *buffer = new tandem_gloo_buffer(gloo, data, bytes); });
}

void tandem_gloo_buffer_close(tandem_gloo_buffer *buffer)
{
    tandem_gloo_error reason;
    run_guarded(&reason, [&] { delete buffer; });
}

void tandem_gloo_hold(tandem_gloo *gloo) { gloo->sign.raise_sign(); }
void tandem_gloo_release(tandem_gloo *gloo) { gloo->sign.lower_sign(); }

tandem_gloo_result tandem_gloo_recv(tandem_gloo_buffer *buffer, int from, uint64_t slot, size_t offset,
                                    size_t bytes, tandem_gloo_error *reason)
{
    return run_guarded(reason, [&] { buffer->unbound->recv(from, slot, offset, bytes); });
}

tandem_gloo_result tandem_gloo_send(tandem_gloo_buffer *buffer, int to, uint64_t slot, size_t offset,
                                    size_t bytes, tandem_gloo_error *reason)
{
    return run_guarded(reason, [&] { buffer->unbound->send(to, slot, offset, bytes); });
}

tandem_gloo_result tandem_gloo_wait_received(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                             tandem_gloo_error *reason)
{
    return run_guarded(reason, [&] {
        buffer->wait_within(timeout_ms, [&] { return buffer->unbound->waitRecv(for_ever); });
    });
}

tandem_gloo_result tandem_gloo_wait_sent(tandem_gloo_buffer *buffer, int64_t timeout_ms,
                                         tandem_gloo_error *reason)
{
    return run_guarded(reason, [&] {
        buffer->wait_within(timeout_ms, [&] { return buffer->unbound->waitSend(for_ever); });
    });
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
const char *tandem_gloo_version(void)
{
    return "Gloo " TEXT(GLOO_VERSION_MAJOR) "." TEXT(GLOO_VERSION_MINOR) "." TEXT(GLOO_VERSION_PATCH);
}
