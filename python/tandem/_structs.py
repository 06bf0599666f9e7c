"""The structs of the stable C headers that calls need, field by field (include/tandem/)."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_int8
from ctypes import c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

MAX_CLASS = 32
N_COMPUTE_DTYPE = 7
F32, BF16, S8, F16, E4M3, E5M2 = range(6)
SCALE_TENSOR, SCALE_ROW, SCALE_KNOWN = 0, 1, 2

# Rows of op.def and precision.def, by number.
OPERATORS = ("images", "tokens", "labels", "linear", "conv2d", "matmul")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int8_full")


class Link(Structure):
    _fields_ = [("bytes_per_s", c_double), ("latency_ns", c_int64)]


class GpuSpec(Structure):
    _fields_ = [
        ("flops_per_s", c_double * N_COMPUTE_DTYPE),
        ("bytes_per_s", c_double),
        ("l2_bytes", c_double),
        ("watts", c_double),
        ("process_nm", c_int),
        ("mhz", c_int),
        ("memory_kind", c_int),
        ("generation", c_int),
        ("n_sm", c_int),
    ]


class Device(Structure):
    _fields_ = [
        ("name", c_char * 48),
        ("meaning", c_char * 96),
        ("precisions", c_uint32),
        ("amp_dtype", c_int),
        ("memory_bytes", c_uint64),
        ("transposed_copy", c_int),
        ("narrow_rows", c_int),
        ("fused_attention", c_int),
        ("joined_tasks", c_int),
        ("padded_rows", c_int),
        ("gpu_spec", GpuSpec),
    ]


class ClusterClass(Structure):
    _fields_ = [
        ("device", Device),
        ("n_rank", c_int),
        ("per_node", c_int),
        ("batch", c_int64),
        ("memory_bytes", c_uint64),
        ("link", Link),
        ("slowdown_ppm", c_int64),
    ]


class Cluster(Structure):
    _fields_ = [
        ("n_class", c_int),
        ("classes", ClusterClass * MAX_CLASS),
        ("link_bytes_per_s", c_double),
        ("link_latency_ns", c_int64),
        ("node", Link),
        ("over_network", c_int),
        ("wire", c_int),
    ]


class StepOptions(Structure):
    _fields_ = [
        ("n_micro", c_int),
        ("n_recompute_segment", c_int),
        ("window", c_int),
        ("margin", c_int),
        ("transposed_copy", c_int),
        ("narrow_rows", c_int),
        ("fused_attention", c_int),
        ("joined_tasks", c_int),
        ("padded_rows", c_int),
        ("with_norm", c_int),
        ("separate_partial_grads", c_int),
        ("emulated", c_int),
        ("ddp_buckets", c_int),
    ]


class Request(Structure):
    _fields_ = [
        ("store", c_char_p),
        ("model", c_char_p),
        ("graph", c_void_p),
        ("n_graph", c_int),
        ("cluster", c_char_p),
        ("batch", c_int64),
        ("memory", c_char_p),
        ("method", c_char_p),
        ("data", c_char_p),
        ("base_precision", c_char_p),
        ("bucket_bytes", c_uint64),
        ("predict", c_int),
        ("collective", c_int),
        ("times_only", c_int),
        ("over_network", c_int),
        ("wire", c_int),
        ("step", StepOptions),
        ("loss_scale", c_double),
        ("norm_is_given", c_int),
        ("kernels", c_int),
        ("without_update", c_int),
    ]


class Problem(Structure):
    _fields_ = [
        ("replayer", c_void_p),
        ("graph", c_void_p),
        ("sensitivity", c_void_p * MAX_CLASS),
        ("sensitivity_unit", c_double),
        ("base_precision", c_int),
        ("uniform", c_int),
        ("slowdown", c_double),
        ("target_ns", c_int64),
        ("work_limit", c_int64),
        ("without_f16_gradients", c_int),
        ("is_free", c_uint32),
        ("loss_scale", c_double),
        ("known_fastest", c_void_p),
        ("without_certificate", c_int),
        ("memory_limit_bytes", c_uint64),
        ("sensing", c_void_p),
    ]


class Certificate(Structure):
    _fields_ = [("lower_bound", c_int64), ("gap", c_double), ("proof", c_char * 24)]


class Allocation(Structure):
    _fields_ = [
        ("name", c_char * 48),
        ("step_ns", c_int64),
        ("target_ns", c_int64),
        ("base_ns", c_int64),
        ("fastest_ns", c_int64),
        ("sensitivity_bound", c_int64),
        ("base_sensitivity_bound", c_int64),
        ("fastest_sensitivity_bound", c_int64),
        ("peak_bytes", c_uint64 * MAX_CLASS),
        ("replays", c_int64),
        ("work", c_int64),
        ("keeps_base", c_uint32),
        ("certificate", Certificate),
        ("training_ns", c_double),
        ("training_bound_ns", c_double),
        ("training_from_ns", c_int64),
        ("training_keeps_base", c_uint32),
        ("indistinguishable_ns", c_int64),
        ("difference", c_double),
        ("difference_low", c_double),
        ("difference_high", c_double),
    ]


class Goal(Structure):
    _fields_ = [("objective", c_int), ("max_sensitivity", c_int64)]


MINIMIZE_SENSITIVITY, MINIMIZE_STEP, MINIMIZE_MEMORY, MINIMIZE_TRAINING_TIME = range(1, 5)


class PlannedClass(Structure):
    _fields_ = [
        ("busy_ns", c_int64),
        ("exposed_comm_ns", c_int64),
        ("wait_ns", c_int64),
        ("peak_bytes", c_uint64),
        ("sample_per_step", c_int64),
    ]


class PlannedStep(Structure):
    _fields_ = [
        ("step_ns", c_int64),
        ("n_class", c_int),
        ("slowest", c_int),
        ("classes", PlannedClass * MAX_CLASS),
        ("measured_ppm", c_int64),
    ]


class Shape(Structure):
    _fields_ = [("n_dim", c_int), ("dim", c_int64 * 4)]

    @classmethod
    def of(cls, dims):
        return cls(len(dims), (c_int64 * 4)(*dims))


class Optimizer(Structure):
    _fields_ = [
        ("kind", c_int),
        ("rate", c_float),
        ("momentum", c_float),
        ("beta1", c_float),
        ("beta2", c_float),
        ("epsilon", c_float),
        ("decay", c_float),
    ]


class RecordedCall(Structure):
    _fields_ = [
        ("kind", c_int),
        ("name", c_char_p),
        ("text", c_char_p),
        ("input", Shape),
        ("second", Shape),
        ("shape", Shape),
        ("kernel", c_int),
        ("stride", c_int),
        ("pad", c_int),
        ("transpose_b", c_int),
        ("parameter_elements", c_int64),
    ]


class GraphHead(Structure):
    """The first members of tandem_graph."""

    _fields_ = [("model", c_char * 5120), ("batch", c_int64), ("hash", c_uint64), ("n_op", c_int)]


class Recording(Structure):
    _fields_ = [
        ("model", c_char_p),
        ("batch", c_int64),
        ("n_call", c_int),
        ("call", POINTER(RecordedCall)),
        ("n_prediction", c_int64),
        ("n_class", c_int64),
        ("optimizer", Optimizer),
    ]


class RecordedCost(Structure):
    _fields_ = [
        ("op", c_int),
        ("precision", c_int),
        ("n", c_int64),
        ("forward_ns", POINTER(c_int64)),
        ("backward_ns", POINTER(c_int64)),
    ]


class RecordedCosts(Structure):
    _fields_ = [
        ("device", c_char_p),
        ("libraries", c_char_p),
        ("n_thread", c_int),
        ("bucket_bytes", c_uint64),
        ("n_cost", c_int),
        ("cost", POINTER(RecordedCost)),
        ("n_update", c_int64),
        ("update_ns", POINTER(c_int64)),
    ]


class Statistics(Structure):
    _fields_ = [
        (name, c_int64)
        for name in ("n_batch", "local_batch", "rows", "k", "columns", "x_elements", "w_elements")
    ]
    _fields_ += [
        (name, c_double)
        for name in (
            "x_amax",
            "w_amax",
            "g_amax",
            "x_square",
            "w_square",
            "g_square",
            "wgrad_square",
            "dgrad_square",
            "g2_w2",
            "g2_x2",
            "g2_x2_c",
            "x2_g2_d",
        )
    ]


class Product(Structure):
    _fields_ = [
        ("rows", c_int64),
        ("k", c_int64),
        ("columns", c_int64),
        ("x", c_void_p),
        ("w", c_void_p),
        ("g", c_void_p),
        ("transposed", c_int),
    ]


# --- graph.h, advanced/format.h, advanced/sensing.h ---


class OpRow(Structure):
    """Its first members."""

    _fields_ = [
        ("name", c_char_p),
        ("op_class", c_int),
        ("n_input", c_int),
        ("n_parameter", c_int),
        ("precisions", c_uint32),
    ]


class PrecisionRow(Structure):
    _fields_ = [
        ("name", c_char_p),
        *((name, c_int) for name in ("forward", "dgrad", "wgrad", "other_operand", "accumulator")),
        *((name, c_int) for name in ("output", "saved", "product")),
    ]


class FormatRow(Structure):
    _fields_ = [
        ("name", c_char_p),
        *((name, c_int) for name in ("dtype", "kind", "bits", "mantissa", "significand", "exponent")),
        *((name, c_int) for name in ("least", "overflow", "rounding", "scale", "block", "sum_bits")),
    ]


ROUNDING_STOCHASTIC = 1
FORMAT_SCALE_LOSS = 1


class FormatCast(Structure):
    _fields_ = [
        ("format", c_int),
        ("x", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("range", c_float),
        ("error_scale", c_double),
        ("seed", c_uint64),
        ("stream", c_uint32 * 3),
    ]


N_FORMAT, N_PROBE_PART, PROBE_BLOCK, PROBE_SKETCH = 11, 5, 16, 4096


class ProbeSums(Structure):
    _fields_ = [
        ("is_before_jump", c_int),
        ("has_second", c_int),
        ("n_products", c_double),
        ("rate_square", c_double),
        ("mean_square", c_double * N_PROBE_PART),
        ("error_square", c_double * N_FORMAT * N_PROBE_PART),
        ("noise", c_double * 2 * N_FORMAT * N_PROBE_PART),
        ("cross", c_double * N_FORMAT),
    ]


class ProbeTensor(Structure):
    _fields_ = [
        ("part", c_int),
        ("place", c_int),
        *((name, c_int64) for name in ("n", "batch", "n_sample")),
        ("share", c_double),
        ("x", c_void_p),
        ("difference", c_void_p * 2),
        ("range", c_float),
        ("error_scale", c_double),
    ]


class Window(Structure):
    _fields_ = [
        (name, c_int64)
        for name in (
            *("n", "height", "width", "channels", "out_height", "out_width"),
            *("kernel_h", "kernel_w", "stride", "pad"),
        )
    ]


MAX_AGE, MIN_REPLICATE, MAX_REPLICATE = 8, 3, 64
AMP_DTYPES = (0, 1, 3)  # f32, bf16, f16


class SensedGradient(Structure):
    _fields_ = [("variance", c_double), ("mean_square", c_double)]


SENSED_ERROR = ("total", "shared", "mean_square", "against", "wide_total", "wide_shared", "wide_mean_square")


class SensedError(Structure):
    _fields_ = [(name, c_double) for name in SENSED_ERROR]


class Sensing(Structure):
    _fields_ = [
        ("batch", c_int64),
        ("steps", c_int64),
        ("seed", c_uint64),
        ("optimizer", c_int),
        ("n_op", c_int),
        ("n_age", c_int),
        ("n_replicate", c_int),
        ("without_bias", c_int),
        ("range_batch", c_int64),
        ("age", c_int64 * MAX_AGE),
        ("gradient", POINTER(SensedGradient)),
        ("error", POINTER(SensedError)),
        ("is_sensed", POINTER(c_uint8)),
    ]


class SensedStep(Structure):
    _fields_ = [("global_batch", c_int64), ("n_micro", c_int), ("gradient_noise", c_double), ("micro_batch", POINTER(c_double))]


class SensitivityEstimate(Structure):
    _fields_ = [
        *((name, c_double) for name in ("value", "low", "high", "noise", "noise_half", "bias", "bias_half")),
        ("at_age", c_double * MAX_AGE),
    ]


class LargestSensitivity(Structure):
    _fields_ = [("op", c_int), ("precision", c_int), *((name, c_double) for name in ("value", "low", "high"))]


class PlanSensitivity(Structure):
    _fields_ = [
        ("estimate", SensitivityEstimate),
        ("n_age", c_int),
        ("age_share", c_double * MAX_AGE),
        ("n_largest", c_int),
        ("largest", LargestSensitivity * 3),
    ]


# --- kernels.h ---


class Rounding(Structure):
    _fields_ = [("seed", c_uint64), ("stream", c_uint32 * 3), ("block", c_uint32)]


class QuantiseCall(Structure):
    _fields_ = [
        ("x", c_void_p),
        ("from_", c_int),
        ("rows", c_int64),
        ("columns", c_int64),
        ("x_row", c_int64),
        ("q", c_void_p),
        ("q_row", c_int64),
        ("transposed", c_void_p),
        ("transposed_row", c_int64),
        ("scale_mode", c_int),
        ("range", c_float),
        ("rounding", POINTER(Rounding)),
        ("scale", c_void_p),
        ("amax", c_void_p),
    ]


class TorchStep(Structure):
    _fields_ = [
        (name, c_int64)
        for name in (
            *("number", "duration_ns", "compute_ns", "comm_ns", "exposed_ns", "idle_ns", "early_ns"),
            "n_kernel",
        )
    ]


class TorchLeftOut(Structure):
    _fields_ = [
        *(
            (name, c_int64)
            for name in (
                *("n_without_operator", "without_operator_ns", "n_without_launch", "n_by_id"),
                *("n_outside", "outside_ns", "n_in_fragment", "in_fragment_ns"),
                *("n_call_outside", "call_outside_ns", "n_unknown", "unknown_ns"),
            )
        ),
        ("unknown", c_char * 120),
        *((name, c_int64) for name in ("n_pair", "n_collective_outside", "n_beyond", "beyond_ns")),
    ]


class TorchRank(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("rank", c_int),
        ("is_device", c_int),
        ("n_step", c_int),
        ("step", POINTER(TorchStep)),
        ("mean", TorchStep),
        *(
            (name, c_int64)
            for name in ("wait_ns", "late_ns", "n_last", "n_event", "n_incomplete", "n_negative")
        ),
        *((name, c_int64) for name in ("n_overlapping", "n_unjoined", "joined_ns")),
        *((name, c_int64) for name in ("n_kernel", "kernel_ns")),
        *((name, c_int) for name in ("n_device", "n_stream", "n_fragment")),
        ("fragment", TorchStep * 2),
        ("left_out", TorchLeftOut),
    ]


class TorchSummary(Structure):
    """Its first members."""

    _fields_ = [("n_rank", c_int), ("rank", POINTER(TorchRank))]


class CastCall(Structure):
    _fields_ = [
        ("x", c_void_p),
        ("from_", c_int),
        ("rows", c_int64),
        ("columns", c_int64),
        ("x_row", c_int64),
        ("y", c_void_p),
        ("to", c_int),
        ("y_row", c_int64),
    ]


class DequantiseCall(Structure):
    _fields_ = [
        ("q", c_void_p),
        ("rows", c_int64),
        ("columns", c_int64),
        ("q_row", c_int64),
        ("x", c_void_p),
        ("to", c_int),
        ("x_row", c_int64),
        ("scale_mode", c_int),
        ("scale", c_void_p),
    ]


class WindowsCall(Structure):
    _fields_ = [
        ("x", c_void_p),
        ("images", c_int64),
        ("height", c_int64),
        ("width", c_int64),
        ("channels", c_int64),
        ("kernel", c_int64),
        ("stride", c_int64),
        ("pad", c_int64),
        ("columns", c_void_p),
    ]


class ProductS8(Structure):
    _fields_ = [
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("a", c_void_p),
        ("a_row", c_int64),
        ("a_column", c_int64),
        ("b", c_void_p),
        ("b_row", c_int64),
        ("b_column", c_int64),
        ("c", c_void_p),
        ("c_row", c_int64),
        ("c_type", c_int),
        ("scale", c_float),
        ("row_scale", c_void_p),
        ("column_scale", c_void_p),
        ("bias", c_void_p),
        ("workspace", c_void_p),
        ("accumulate", c_int),
    ]


class LayerOperand(Structure):
    _fields_ = [
        ("x", c_void_p),
        ("q", c_void_p),
        ("elements", c_int64),
        ("row", c_int64),
        ("column", c_int64),
        ("step", c_int64 * 2),
        ("stream", c_uint32),
        ("scale", c_float),
    ]


class LinearPass(Structure):
    _fields_ = [
        ("to", c_int),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("batch", c_int64 * 2),
        ("a", LayerOperand),
        ("b", LayerOperand),
        ("g", LayerOperand),
        ("c", c_void_p),
        ("bias", c_void_p),
        ("ga", c_void_p),
        ("gb", c_void_p),
        ("g_bias", c_void_p),
        ("seed", c_uint64),
        ("stream", c_uint32 * 2),
        ("gb_transposed", c_int),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
    ]


class Conv2dS8(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("images", "height", "width", "channels", "out")),
        *((name, c_int64) for name in ("kernel", "stride", "pad")),
        ("x", LayerOperand),
        ("w", LayerOperand),
        ("g", LayerOperand),
        ("y", c_void_p),
        ("bias", c_void_p),
        ("gx", c_void_p),
        ("gw", c_void_p),
        ("g_bias", c_void_p),
        ("seed", c_uint64),
        ("stream", c_uint32 * 2),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
    ]


class Conv3x3(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("images", "height", "width", "channels", "out")),
        ("from_", c_int),
        *((name, c_void_p) for name in ("x", "w", "g", "y", "gx", "gw", "workspace")),
    ]


__all__ = [name for name in dir() if name[0].isupper()] + ["c_int8", "c_int32"]


class CudaQuantiseCall(Structure):
    _fields_ = [
        ("x", c_void_p),
        ("from_", c_int),
        *((name, c_int64) for name in ("batch", "rows", "columns")),
        ("q", c_void_p),
        ("to", c_int),
        ("transposed", c_void_p),
        ("scale_mode", c_int),
        ("range", c_float),
        ("history", c_void_p),
        ("reuse_range", c_int),
        ("rounding", POINTER(Rounding)),
        *((name, c_void_p) for name in ("stream_offset", "scale", "workspace")),
    ]


class CudaDequantiseCall(Structure):
    _fields_ = [
        ("q", c_void_p),
        ("from_", c_int),
        *((name, c_int64) for name in ("rows", "columns")),
        ("x", c_void_p),
        ("to", c_int),
        ("scale_mode", c_int),
        ("scale", c_void_p),
    ]


class CudaProductCall(Structure):
    _fields_ = [
        *((name, c_int64) for name in ("batch", "m", "n", "k")),
        *((name, c_void_p) for name in ("a", "b")),
        *((name, c_int) for name in ("a_type", "b_type", "a_transposed", "b_transposed")),
        *((name, c_void_p) for name in ("a_scale", "b_scale", "c")),
        *((name, c_int) for name in ("c_type", "tf32", "accumulate")),
    ]
