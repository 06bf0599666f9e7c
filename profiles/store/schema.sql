-- schema.sql: the profile store. A store with another schema is refused (objects.def), so a change here takes
-- a new version in store.c.
--
-- Times are integers: *_ns a duration in nanoseconds, time_ns nanoseconds since 1970 (UTC). Sizes are bytes.
-- Every measured row names the host it was measured on and when.

-- Who measured: a machine with the libraries and threads it measured with. The machine's name is kept as a
-- hash.
CREATE TABLE host (
    id INTEGER PRIMARY KEY,
    name_hash TEXT NOT NULL,
    cpu TEXT NOT NULL,
    n_cpu INTEGER NOT NULL,
    libraries TEXT NOT NULL, -- "oneDNN 2.6.3, Gloo 0.5.0"; "" = not said
    n_thread INTEGER NOT NULL, -- 0 = not said
    UNIQUE (name_hash, cpu, n_cpu, libraries, n_thread)
) STRICT;

CREATE TABLE device (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

-- hash: of the graph without its batch, 16 hexadecimal digits; equal for equal models.
CREATE TABLE model (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE
) STRICT;

-- signature: kind and shape of an operator in canonical form; equal signatures cost the same on a device.
CREATE TABLE operator (
    id INTEGER PRIMARY KEY,
    signature TEXT NOT NULL UNIQUE
) STRICT;

-- Costs are summaries of n repetitions that merge: sums add. n_outlier more were interrupted by others and
-- count in nothing else; n_disturbed were dropped. low_ns to high_ns: the interval of the median; speed
-- samples: those taken while it was measured; 0 = not known. co_runner: the device that was busy on the same
-- memory system meanwhile; '' = none was.
CREATE TABLE op_cost (
    device INTEGER NOT NULL REFERENCES device (id),
    co_runner TEXT NOT NULL,
    operator INTEGER NOT NULL REFERENCES operator (id),
    "precision" TEXT NOT NULL,
    pass TEXT NOT NULL,
    operand TEXT NOT NULL, -- number type of what it reads
    result TEXT NOT NULL,  -- number type of what it writes
    n INTEGER NOT NULL CHECK (n > 0),
    n_outlier INTEGER NOT NULL CHECK (n_outlier >= 0),
    sum_ns REAL NOT NULL,
    sum_squares_ns2 REAL NOT NULL,
    median_ns INTEGER NOT NULL,
    p10_ns INTEGER NOT NULL,
    p90_ns INTEGER NOT NULL,
    workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0),
    n_disturbed INTEGER NOT NULL CHECK (n_disturbed >= 0),
    low_ns INTEGER NOT NULL,
    high_ns INTEGER NOT NULL,
    compute_speed_sample_ns INTEGER NOT NULL,
    memory_speed_sample_ns INTEGER NOT NULL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (device, co_runner, operator, "precision", pass, operand, result)
) STRICT, WITHOUT ROWID;

-- range_source: how the cast learns the magnitude of its input: `measured` by a pass of its own, `known` in
-- advance, or `delayed`: from earlier casts. transposed_copy: it writes a transposed copy as well.
CREATE TABLE cast_cost (
    device INTEGER NOT NULL REFERENCES device (id),
    co_runner TEXT NOT NULL,
    elements INTEGER NOT NULL,
    operand TEXT NOT NULL,
    result TEXT NOT NULL,
    range_source TEXT NOT NULL,
    transposed_copy INTEGER NOT NULL CHECK (transposed_copy IN (0, 1)),
    n INTEGER NOT NULL CHECK (n > 0),
    n_outlier INTEGER NOT NULL CHECK (n_outlier >= 0),
    sum_ns REAL NOT NULL,
    sum_squares_ns2 REAL NOT NULL,
    median_ns INTEGER NOT NULL,
    p10_ns INTEGER NOT NULL,
    p90_ns INTEGER NOT NULL,
    workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0),
    n_disturbed INTEGER NOT NULL CHECK (n_disturbed >= 0),
    low_ns INTEGER NOT NULL,
    high_ns INTEGER NOT NULL,
    compute_speed_sample_ns INTEGER NOT NULL,
    memory_speed_sample_ns INTEGER NOT NULL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (device, co_runner, elements, operand, result, range_source, transposed_copy)
) STRICT, WITHOUT ROWID;

-- device_group: the sorted names of all ranks' devices. loaded: every rank also computed meanwhile.
CREATE TABLE collective_cost (
    device_group TEXT NOT NULL,
    collective TEXT NOT NULL,
    loaded INTEGER NOT NULL CHECK (loaded IN (0, 1)),
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    n INTEGER NOT NULL CHECK (n > 0),
    n_outlier INTEGER NOT NULL CHECK (n_outlier >= 0),
    sum_ns REAL NOT NULL,
    sum_squares_ns2 REAL NOT NULL,
    median_ns INTEGER NOT NULL,
    p10_ns INTEGER NOT NULL,
    p90_ns INTEGER NOT NULL,
    workspace_bytes INTEGER NOT NULL CHECK (workspace_bytes >= 0),
    n_disturbed INTEGER NOT NULL CHECK (n_disturbed >= 0),
    low_ns INTEGER NOT NULL,
    high_ns INTEGER NOT NULL,
    compute_speed_sample_ns INTEGER NOT NULL,
    memory_speed_sample_ns INTEGER NOT NULL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (device_group, collective, loaded, bytes)
) STRICT, WITHOUT ROWID;

-- factor: how many times longer `kind` of work takes on the device beside a collective of `bytes`; 1 = no
-- longer. From n measurements.
CREATE TABLE interference (
    device INTEGER NOT NULL REFERENCES device (id),
    device_group TEXT NOT NULL,
    kind TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes >= 0),
    factor REAL NOT NULL CHECK (factor > 0),
    n INTEGER NOT NULL CHECK (n > 0),
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (device, device_group, kind, bytes)
) STRICT, WITHOUT ROWID;

-- Means over n_batch batches of `data`; op is the operator's place in the graph, and its name.
CREATE TABLE statistics (
    model INTEGER NOT NULL REFERENCES model (id),
    data TEXT NOT NULL,
    op INTEGER NOT NULL,
    op_name TEXT NOT NULL,
    n_batch INTEGER NOT NULL CHECK (n_batch > 0),
    local_batch INTEGER NOT NULL CHECK (local_batch > 0),
    "rows" INTEGER NOT NULL,
    k INTEGER NOT NULL,
    "columns" INTEGER NOT NULL,
    x_elements INTEGER NOT NULL,
    w_elements INTEGER NOT NULL,
    x_amax REAL NOT NULL,
    w_amax REAL NOT NULL,
    g_amax REAL NOT NULL,
    x_square REAL NOT NULL,
    w_square REAL NOT NULL,
    g_square REAL NOT NULL,
    wgrad_square REAL NOT NULL,
    dgrad_square REAL NOT NULL,
    g2_w2 REAL NOT NULL,
    g2_x2 REAL NOT NULL,
    g2_x2_c REAL NOT NULL,
    x2_g2_d REAL NOT NULL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (model, data, op)
) STRICT, WITHOUT ROWID;

-- json: the file, tandem.plan/1; '' where a run had none.
CREATE TABLE plan (
    id INTEGER PRIMARY KEY,
    model INTEGER NOT NULL REFERENCES model (id),
    name TEXT NOT NULL,
    cluster TEXT NOT NULL,
    json TEXT NOT NULL,
    UNIQUE (model, name, cluster, json)
) STRICT;

-- NULL where a figure is not known.
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    plan INTEGER NOT NULL REFERENCES plan (id),
    steps INTEGER NOT NULL,
    predicted_ns INTEGER,
    measured_ns INTEGER,
    sensitivity REAL,
    final_loss REAL,
    accuracy REAL,
    exit_code INTEGER NOT NULL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL
) STRICT;

-- One row a task of a rank of a run: medians over its steps, from the begin of the step. Host and time are
-- the run's.
CREATE TABLE event (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    rank INTEGER NOT NULL,
    task INTEGER NOT NULL,
    op INTEGER, -- the operator's place in the graph; NULL = none
    kind TEXT NOT NULL,
    stream TEXT NOT NULL,
    start_ns INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    PRIMARY KEY (run, rank, task)
) STRICT, WITHOUT ROWID;

-- The fastest of several algorithms for a piece of work. spec: the device, the versions of its libraries and
-- the work; choice: the algorithm. Both texts are the device's own.
CREATE TABLE algorithm (
    spec TEXT PRIMARY KEY,
    choice TEXT NOT NULL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The clocks of a device while it was profiled.
CREATE TABLE clock (
    device INTEGER NOT NULL REFERENCES device (id),
    compute_mhz INTEGER NOT NULL CHECK (compute_mhz >= 0),
    memory_mhz INTEGER NOT NULL CHECK (memory_mhz >= 0),
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (device, host, time_ns)
) STRICT, WITHOUT ROWID;

-- How steady the machine was while it was measured. Shares and spreads are NULL where unknown.
CREATE TABLE steadiness (
    device INTEGER NOT NULL REFERENCES device (id),
    co_runner TEXT NOT NULL,
    compute_speed_sample_ns INTEGER NOT NULL CHECK (compute_speed_sample_ns >= 0),
    memory_speed_sample_ns INTEGER NOT NULL CHECK (memory_speed_sample_ns >= 0),
    compute_spread REAL,
    memory_spread REAL,
    delay_share REAL,
    steal_share REAL,
    interval_share REAL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (device, co_runner, host)
) STRICT, WITHOUT ROWID;

-- One estimate for a model, data set, batch, optimizer, scaling and seed: a later one replaces it.
CREATE TABLE estimate (
    id INTEGER PRIMARY KEY,
    model INTEGER NOT NULL REFERENCES model (id),
    data TEXT NOT NULL,
    batch INTEGER NOT NULL CHECK (batch > 0),
    optimizer TEXT NOT NULL,
    scaling TEXT NOT NULL, -- of casts: "current"
    seed INTEGER NOT NULL, -- of the training, its bits as a signed number
    steps INTEGER NOT NULL CHECK (steps >= 0),
    n_replicate INTEGER NOT NULL CHECK (n_replicate >= 3),
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    UNIQUE (model, data, batch, optimizer, scaling, seed)
) STRICT;

CREATE TABLE estimated_gradient (
    estimate INTEGER NOT NULL REFERENCES estimate (id) ON DELETE CASCADE,
    training_point INTEGER NOT NULL CHECK (training_point >= 0), -- steps before
    replicate INTEGER NOT NULL,
    variance REAL NOT NULL,
    mean_square REAL NOT NULL,
    PRIMARY KEY (estimate, training_point, replicate)
) STRICT, WITHOUT ROWID;

CREATE TABLE estimated_error (
    estimate INTEGER NOT NULL REFERENCES estimate (id) ON DELETE CASCADE,
    op INTEGER NOT NULL,
    op_name TEXT NOT NULL,
    "precision" TEXT NOT NULL,
    amp_dtype TEXT NOT NULL, -- f32 where the precision does not depend on it
    training_point INTEGER NOT NULL,
    replicate INTEGER NOT NULL,
    total REAL NOT NULL,
    shared REAL NOT NULL,
    mean_square REAL NOT NULL,
    against REAL NOT NULL,
    PRIMARY KEY (estimate, op, "precision", amp_dtype, training_point, replicate)
) STRICT, WITHOUT ROWID;

-- The samples that have a range (tandem_estimate.range_batch). An estimate without a row here does not
-- convert ranges.
CREATE TABLE estimated_range (
    estimate INTEGER PRIMARY KEY REFERENCES estimate (id) ON DELETE CASCADE,
    batch INTEGER NOT NULL CHECK (batch > 0)
) STRICT;

-- What errors are with ranges of TANDEM_WIDE_RANGE times as many samples. Errors that do not depend on the
-- range have no row.
CREATE TABLE estimated_wide_error (
    estimate INTEGER NOT NULL REFERENCES estimate (id) ON DELETE CASCADE,
    op_name TEXT NOT NULL,
    "precision" TEXT NOT NULL,
    amp_dtype TEXT NOT NULL,
    training_point INTEGER NOT NULL,
    replicate INTEGER NOT NULL,
    total REAL NOT NULL,
    shared REAL NOT NULL,
    mean_square REAL NOT NULL,
    PRIMARY KEY (estimate, op_name, "precision", amp_dtype, training_point, replicate)
) STRICT, WITHOUT ROWID;

-- A training of a trial. hash: of all that decides its numbers. held_out: loss of the samples kept back, in
-- the plan's precisions and in the base's; NULL = not evaluated, or not finite.
CREATE TABLE branch (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    model INTEGER NOT NULL REFERENCES model (id),
    steps INTEGER NOT NULL CHECK (steps > 0),
    held_out REAL,
    held_out_in_base REAL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL
) STRICT;

-- loss: of the step's batch; NULL = not finite. Host and time are the branch's.
CREATE TABLE branch_loss (
    branch INTEGER NOT NULL REFERENCES branch (id) ON DELETE CASCADE,
    step INTEGER NOT NULL, -- from 0
    loss REAL,
    PRIMARY KEY (branch, step)
) STRICT, WITHOUT ROWID;

-- What a trial found: one of the same training with as many pairs replaces it. training: the hash of the
-- plan's first branch, of all that decides its numbers. plan_hash: of devices, ranks, batches and precisions,
-- which plan has as tandem_plan_text writes them. extra: samples that the plan needs more than its base, as a
-- share; NULL = not known.
CREATE TABLE trial (
    model INTEGER NOT NULL REFERENCES model (id),
    plan_hash TEXT NOT NULL,
    plan TEXT NOT NULL,
    training TEXT NOT NULL,
    data TEXT NOT NULL,
    base TEXT NOT NULL, -- precision
    steps_before INTEGER NOT NULL CHECK (steps_before >= 0),
    steps INTEGER NOT NULL CHECK (steps > 0),
    emulated INTEGER NOT NULL CHECK (emulated IN (0, 1)),
    pairs INTEGER NOT NULL CHECK (pairs > 0),
    diverged INTEGER NOT NULL CHECK (diverged >= 0),
    extra REAL,
    extra_low REAL,
    extra_high REAL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    PRIMARY KEY (model, plan_hash, base, training)
) STRICT, WITHOUT ROWID;

-- Imported times. A set has all that many rows have in common. Host and time are those of the filing.
CREATE TABLE timing_set (
    id INTEGER PRIMARY KEY,
    device INTEGER NOT NULL REFERENCES device (id),
    source TEXT NOT NULL,
    method TEXT NOT NULL, -- how it was timed: "events", "loop"
    operator TEXT NOT NULL,
    "precision" TEXT NOT NULL,
    pass TEXT NOT NULL,
    host INTEGER NOT NULL REFERENCES host (id),
    time_ns INTEGER NOT NULL,
    UNIQUE (device, source, method, operator, "precision", pass)
) STRICT;

-- What a row works, what it took, and the sizes that its operator has; NULL = not stated, or no padding.
CREATE TABLE timing (
    timing_set INTEGER NOT NULL REFERENCES timing_set (id),
    place INTEGER NOT NULL, -- in order of filing
    took_ns REAL NOT NULL CHECK (took_ns > 0),
    flops REAL NOT NULL CHECK (flops >= 0),
    bytes REAL NOT NULL CHECK (bytes >= 0),
    batch INTEGER, m INTEGER, k INTEGER, n INTEGER, "rows" INTEGER, "columns" INTEGER,
    images INTEGER, channels_in INTEGER, height INTEGER, width INTEGER, channels_out INTEGER,
    kernel_h INTEGER, kernel_w INTEGER, pad_h INTEGER, pad_w INTEGER,
    stride_h INTEGER, stride_w INTEGER,
    PRIMARY KEY (timing_set, place)
) STRICT, WITHOUT ROWID;
